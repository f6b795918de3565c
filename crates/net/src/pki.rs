//! A small certificate authority: one root, certificates for servers and clients, all for mutual TLS.
//!
//! In a directory: `ca.pem`, `ca.key`, and `NAME.pem`, `NAME.key` for each party. Keys have mode 0600.

use crate::Role;
use crate::keyfile::{self, KeyFileError};
use crate::tls::Files;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::ServerName;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};

/// Certificates are good from this long ago, so that a clock that is a little behind accepts them.
const BACKDATED: Duration = Duration::hours(1);

/// Why a certificate was not made.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A key's file.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// A certificate's file.
    #[error("read or write {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The certificate itself.
    #[error("make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A name that could be mistaken for a path or another field.
    #[error("{0:?} is no name: use letters, digits, '.', '-' and '_', at most 64")]
    Name(String),
    /// What no server can be reached under.
    #[error("{0:?} is neither a host's name nor an address")]
    Host(String),
    /// It would be lost.
    #[error("{0} exists: --renew makes key and certificate anew")]
    Exists(PathBuf),
}

/// Whether a name can be a party's: it becomes a file's name and a chunk's first component.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && !name.starts_with('.')
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
}

/// The authority's own files are called so.
fn check_name(name: &str) -> Result<(), PkiError> {
    if is_name(name) && name != "ca" { Ok(()) } else { Err(PkiError::Name(name.to_owned())) }
}

/// Whether a server can be reached under this; a name may begin with `*.`.
fn is_host(host: &str) -> bool {
    ServerName::try_from(host.strip_prefix("*.").unwrap_or(host)).is_ok()
}

/// Makes the root: `ca.pem` and `ca.key`.
///
/// # Errors
/// When it exists already, or cannot be written.
pub fn create_authority(directory: &Path, days: u32) -> Result<(), PkiError> {
    let key = KeyPair::generate()?;
    let mut params = params("ullage authority", days);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?;
    keyfile::write(&directory.join("ca.key"), key.serialize_pem().as_bytes())?;
    write_public(&directory.join("ca.pem"), &certificate.pem())
}

/// Makes `NAME.pem` and `NAME.key`, signed by the root in the same directory. `hosts` are the names and addresses a server is
/// reached under; parties that only connect need none.
///
/// # Errors
/// When the root is not there, the name is unfit, or the files exist already.
pub fn issue(directory: &Path, name: &str, role: Role, hosts: &[String], days: u32) -> Result<(), PkiError> {
    check_name(name)?;
    let files = Files::in_directory(directory, name);
    match [&files.key, &files.certificate].into_iter().find(|path| path.exists()) {
        Some(path) => Err(PkiError::Exists(path.clone())),
        None => renew(directory, name, role, hosts, days),
    }
}

/// As [`issue`], also in place of files that are there: what has been issued before stays good as long as it is.
///
/// # Errors
/// When the root is not there, the name is unfit, or the files cannot be written.
pub fn renew(directory: &Path, name: &str, role: Role, hosts: &[String], days: u32) -> Result<(), PkiError> {
    check_name(name)?;
    if let Some(host) = hosts.iter().find(|host| !is_host(host)) {
        return Err(PkiError::Host(host.clone()));
    }
    let path = directory.join("ca.pem");
    let authority = fs::read_to_string(&path).map_err(|source| PkiError::Io { path, source })?;
    let authority_key = keyfile::read(&directory.join("ca.key"))?;
    let authority_key = KeyPair::from_pem(&String::from_utf8_lossy(&authority_key))?;
    let issuer = Issuer::from_ca_cert_pem(&authority, authority_key)?;
    let key = KeyPair::generate()?;
    let mut params = params(name, days);
    params.distinguished_name.push(DnType::OrganizationalUnitName, role.to_string());
    let hosts = CertificateParams::new(hosts.to_vec())?;
    params.subject_alt_names = hosts.subject_alt_names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if matches!(role, Role::Store | Role::Bank | Role::Etcd) {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    let certificate = params.signed_by(&key, &issuer)?;
    put(&Files::in_directory(directory, name), &key.serialize_pem(), &certificate.pem())
}

/// Both are written before either is in its place: a directory without room loses nothing.
fn put(files: &Files, key: &str, certificate: &str) -> Result<(), PkiError> {
    let (new_key, new_certificate) = (keyfile::beside(&files.key), keyfile::beside(&files.certificate));
    let write = || {
        keyfile::write(&new_key, key.as_bytes())?;
        write_public(&new_certificate, certificate)?;
        for (from, to) in [(&new_key, &files.key), (&new_certificate, &files.certificate)] {
            fs::rename(from, to).map_err(|source| PkiError::Io { path: to.clone(), source })?;
        }
        Ok(())
    };
    write().inspect_err(|_| {
        for left in [&new_key, &new_certificate] {
            let _ = fs::remove_file(left);
        }
    })
}

fn params(name: &str, days: u32) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - BACKDATED;
    params.not_after = now + Duration::days(days.into());
    params
}

fn write_public(path: &Path, text: &str) -> Result<(), PkiError> {
    let written =
        File::create(path).and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|source| PkiError::Io { path: path.to_owned(), source })
}
