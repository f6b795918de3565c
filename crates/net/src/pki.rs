//! A small certificate authority: one root, certificates for servers and clients, all for mutual TLS.
//!
//! In a directory: `ca.pem`, `ca.key`, and `NAME.pem`, `NAME.key` for each party, beside the site's other keys. Keys have mode 0600.

use crate::Role;
use crate::keyfile::{self, KeyFileError};
use crate::replacement::Replacement;
use crate::tls::Files;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use std::fs;
use std::io::ErrorKind;
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
    /// A name whose key's file is another key's.
    #[error("{0}.key is a key of the site's own: give the party another name")]
    Own(String),
    /// What no server can be reached under.
    #[error("{0:?} is neither a host's name nor an address")]
    Host(String),
    /// It would be lost.
    #[error("{0} exists: --renew makes key and certificate anew")]
    Exists(PathBuf),
    /// A certificate's file that holds none.
    #[error("read {0}: {1}")]
    Pem(PathBuf, pem::Error),
    /// It cannot be called back here.
    #[error("{0} is no certificate that this site's authority made for a party")]
    Foreign(PathBuf),
    /// The list of what was called back.
    #[error("{0} is no list of certificates that were called back: what it held would be good again")]
    List(PathBuf),
    /// It would be lost, and is none that a renewal is of.
    #[error("{0} holds no party's key: move it away, or give the party another name")]
    Other(PathBuf),
}

/// Whether a name can be a party's: it becomes a file's name and a chunk's first component.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && !name.starts_with('.')
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
}

/// What to tell of what is no user's name; nothing where it can be one.
pub fn refused_user(name: &str) -> Option<String> {
    (!is_name(name)).then(|| format!("{name:?} is no user's name: letters, digits, '.', '-' and '_', at most 64"))
}

fn check_name(name: &str) -> Result<(), PkiError> {
    match name {
        _ if !is_name(name) => Err(PkiError::Name(name.to_owned())),
        _ if is_own(name) => Err(PkiError::Own(name.to_owned())),
        _ => Ok(()),
    }
}

/// Whether the authority's key is in `NAME.key`, or a secret of vouchers, capabilities or tokens.
fn is_own(name: &str) -> bool {
    let number = name.strip_prefix("voucher").and_then(|rest| rest.strip_prefix(['.', '-']));
    ["ca", "voucher", "capability", "token"].contains(&name)
        || number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

/// Whatever else is in a key's place stays there.
fn check_replaced(key: &Path) -> Result<(), PkiError> {
    match fs::read(key) {
        Ok(old) if PrivateKeyDer::from_pem_slice(&old).is_ok() => Ok(()),
        Ok(_) => Err(PkiError::Other(key.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(PkiError::Io { path: key.to_owned(), source }),
    }
}

/// Whether a server can be reached under this; a name may begin with `*.`.
fn is_host(host: &str) -> bool {
    ServerName::try_from(host.strip_prefix("*.").unwrap_or(host)).is_ok()
}

/// Makes a site's authority and its other keys: all of them, or none. Gives their files.
///
/// # Errors
/// When one of them exists already, or cannot be written.
pub fn create_site(directory: &Path, days: u32) -> Result<Vec<PathBuf>, PkiError> {
    let keys = ["voucher.key", "capability.key", "token.key"].map(|key| directory.join(key));
    let mut files = ["ca.pem", "ca.key"].map(|file| directory.join(file)).to_vec();
    files.extend(keys.iter().cloned());
    // The authority's key may be kept elsewhere: what else is there is a site's all the same.
    if let Some(there) = files.iter().find(|file| file.symlink_metadata().is_ok()) {
        return Err(KeyFileError::Exists(there.clone()).into());
    }
    create_authority(directory, days)?;
    for (made, key) in keys.iter().enumerate() {
        keyfile::new_key(key).inspect_err(|_| {
            for file in &files[..2 + made] {
                let _ = fs::remove_file(file);
            }
        })?;
    }
    Ok(files)
}

/// Makes the root: `ca.pem` and `ca.key`.
///
/// # Errors
/// When one of them exists already, or cannot be written.
pub fn create_authority(directory: &Path, days: u32) -> Result<(), PkiError> {
    let key = KeyPair::generate()?;
    let mut params = params("ullage authority", days);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?;
    // The certificate first: all that is signed hangs on it, wherever its key is kept.
    let public = directory.join("ca.pem");
    keyfile::write_new(&public, certificate.pem().as_bytes(), 0o666)?;
    keyfile::write(&directory.join("ca.key"), key.serialize_pem().as_bytes()).inspect_err(|_| {
        let _ = fs::remove_file(&public);
    })?;
    Ok(())
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
/// When the root is not there, the name is unfit, what is there is no party's key, or the files cannot be written.
pub fn renew(directory: &Path, name: &str, role: Role, hosts: &[String], days: u32) -> Result<(), PkiError> {
    check_name(name)?;
    if let Some(host) = hosts.iter().find(|host| !is_host(host)) {
        return Err(PkiError::Host(host.clone()));
    }
    let files = Files::in_directory(directory, name);
    check_replaced(&files.key)?;
    let issuer = issuer(directory)?;
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
    put(&files, &key.serialize_pem(), &certificate.pem())
}

/// The authority, with its key.
pub(crate) fn issuer(directory: &Path) -> Result<Issuer<'static, KeyPair>, PkiError> {
    let path = directory.join("ca.pem");
    let authority = fs::read_to_string(&path).map_err(|source| PkiError::Io { path, source })?;
    let key = keyfile::read(&directory.join("ca.key"))?;
    let key = KeyPair::from_pem(&String::from_utf8_lossy(&key))?;
    Ok(Issuer::from_ca_cert_pem(&authority, key)?)
}

/// Both are written before either is in its place: a directory without room loses nothing.
fn put(files: &Files, key: &str, certificate: &str) -> Result<(), PkiError> {
    let key = Replacement::secret(&files.key, key.as_bytes())?;
    let certificate = Replacement::public(&files.certificate, certificate.as_bytes())?;
    key.place()?;
    Ok(certificate.place()?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, chown, symlink};

    fn authority() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        create_authority(directory.path(), 1).unwrap();
        directory
    }

    /// Regression: `issue token --renew`, which the message told to use, put a party's key in the place of the site's own.
    #[test]
    fn the_sites_own_keys_are_nobodys() {
        let directory = authority();
        for name in ["ca", "token", "voucher", "capability", "voucher.2", "voucher-1", "voucher-1.2"] {
            let path = directory.path().join(format!("{name}.key"));
            let _ = keyfile::new_key(&path);
            let before = fs::read(&path).unwrap();
            for make in [issue, renew] {
                let error = make(directory.path(), name, Role::User, &[], 1).unwrap_err().to_string();
                assert!(error.contains("the site's own") && !error.contains("--renew"), "{error}");
            }
            assert_eq!(fs::read(&path).unwrap(), before);
        }
        for name in ["voucher-x", "tokens", "vouchers-1"] {
            issue(directory.path(), name, Role::User, &[], 1).unwrap();
        }
    }

    /// Regression: the certificate of a site whose authority's key is kept elsewhere was overwritten, and nothing that it had signed
    /// was believed any more.
    #[test]
    fn a_site_is_made_where_there_is_none_only() {
        let directory = tempfile::tempdir().unwrap();
        let site = directory.path().join("site");
        let files = create_site(&site, 1).unwrap();
        for kept in &files {
            let elsewhere = directory.path().join("elsewhere");
            fs::rename(kept, &elsewhere).unwrap();
            let left = || files.iter().map(|file| fs::read(file).ok()).collect::<Vec<_>>();
            let before = left();
            let error = create_site(&site, 1).unwrap_err().to_string();
            assert!(error.contains("exists already"), "{error}");
            assert_eq!(left(), before);
            fs::rename(&elsewhere, kept).unwrap();
        }
        fs::remove_file(directory.path().join("site/ca.key")).unwrap();
        assert!(create_authority(&site, 1).is_err() && !site.join("ca.key").exists());
    }

    /// Regression: an empty key was left, with which no bank starts and after which the next attempt was refused.
    #[test]
    fn a_full_disk_leaves_no_part_of_a_site_and_no_half_of_a_key() {
        let ground = tempfile::tempdir().unwrap();
        let on = |program: &str, words: &[&str]| {
            std::process::Command::new(program).args(words).arg(ground.path()).status().is_ok_and(|done| done.success())
        };
        if !on("mount", &["-t", "tmpfs", "-o", "size=16k", "none"]) {
            eprintln!("skipped: needs root to mount a small disk");
            return;
        }
        let site = ground.path().join("site");
        let outcomes: Vec<_> = (0..4)
            .rev()
            .map(|full| {
                let _ = fs::write(ground.path().join("other"), vec![1; full << 12]);
                let made = create_site(&site, 1);
                (made.is_ok(), fs::read_dir(&site).map_or(0, Iterator::count))
            })
            .collect();
        let _no_room = fs::write(ground.path().join("other"), vec![1; 5 << 12]);
        let key = (keyfile::new_key(&site.join("voucher.2.key")).is_err(), site.join("voucher.2.key").exists());
        assert!(on("umount", &["-l"]));
        assert_eq!(outcomes, [(false, 0), (false, 0), (false, 0), (false, 0)]);
        assert_eq!(key, (true, false));
    }

    #[test]
    fn what_is_no_partys_key_is_not_replaced() {
        let directory = authority();
        let path = directory.path().join("later.key");
        keyfile::new_key(&path).unwrap();
        let before = fs::read(&path).unwrap();
        let error = renew(directory.path(), "later", Role::User, &[], 1).unwrap_err().to_string();
        assert!(error.contains("later.key") && error.contains("move it"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    /// Regression: a renewed key belonged to who renewed it, so that the server could not read it, and a link became a plain file.
    #[test]
    fn what_is_renewed_keeps_its_owner_and_the_links_to_it() {
        let directory = authority();
        let at = |name: &str| directory.path().join(name);
        issue(directory.path(), "bank", Role::Bank, &[], 1).unwrap();
        fs::create_dir(at("own")).unwrap();
        let files = ["bank.key", "bank.pem"].map(|name| (at(name), at("own").join(name)));
        let owner = |path: &Path| fs::metadata(path).map(|file| (file.uid(), file.gid())).unwrap();
        let mut before = Vec::new();
        for (path, kept) in &files {
            fs::rename(path, kept).unwrap();
            symlink(kept, path).unwrap();
            // Only root gives files away.
            let _ = chown(kept, Some(65534), Some(65534));
            before.push((owner(kept), fs::read(kept).unwrap()));
        }
        renew(directory.path(), "bank", Role::Bank, &[], 1).unwrap();
        for ((path, kept), (before, old)) in files.iter().zip(before) {
            assert_eq!(fs::read_link(path).unwrap(), *kept);
            assert_eq!(owner(kept), before);
            assert_ne!(fs::read(kept).unwrap(), old);
        }
        crate::tls::client(&Files::in_directory(directory.path(), "bank")).unwrap();
    }
}
