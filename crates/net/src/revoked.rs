//! Certificates that were called back before they ended: `ca.crl` beside `ca.pem`, signed by the authority.

use crate::pki::{PkiError, issuer};
use crate::replacement::Replacement;
use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

/// No list is too old: there is a newer one when another certificate is called back.
const GOOD_DAYS: i64 = 36_500;

/// The list that belongs to an authority's certificate, if anything was ever called back.
pub(crate) fn list(authority: &Path) -> Result<Option<CertificateRevocationListDer<'static>>, (PathBuf, pem::Error)> {
    let path = authority.with_extension("crl");
    match CertificateRevocationListDer::from_pem_file(&path) {
        Ok(list) => Ok(Some(list)),
        Err(pem::Error::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err((path, error)),
    }
}

/// Calls a certificate back: whoever reads the list that is given back takes it no more. Once is as good as twice.
///
/// # Errors
/// When it is none of the authority's in the directory, whose key is not there, or the list cannot be read or written.
pub fn revoke(directory: &Path, certificate: &Path) -> Result<PathBuf, PkiError> {
    let authority = directory.join("ca.pem");
    let serial = serial_of(certificate, &authority)?;
    let path = authority.with_extension("crl");
    let now = OffsetDateTime::now_utc();
    let known = list(&authority).map_err(|(path, _)| PkiError::List(path))?;
    let mut called = match &known {
        Some(known) => entries(known).ok_or_else(|| PkiError::List(path.clone()))?,
        None => Vec::new(),
    };
    if !called.iter().any(|(other, _)| *other == serial) {
        called.push((serial, now));
    }
    let entry = |(serial, at): &(Vec<u8>, OffsetDateTime)| RevokedCertParams {
        serial_number: SerialNumber::from_slice(serial),
        revocation_time: *at,
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: now,
        next_update: now + Duration::days(GOOD_DAYS),
        crl_number: SerialNumber::from(called.len() as u64),
        issuing_distribution_point: None,
        revoked_certs: called.iter().map(entry).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&issuer(directory)?)?.pem()?;
    Replacement::public(&path, list.as_bytes())?.place()?;
    Ok(path)
}

/// The number of a certificate that this authority made.
fn serial_of(certificate: &Path, authority: &Path) -> Result<Vec<u8>, PkiError> {
    let read = |path: &Path| CertificateDer::from_pem_file(path).map_err(|error| PkiError::Pem(path.to_owned(), error));
    let (theirs, ours) = (read(certificate)?, read(authority)?);
    let foreign = || PkiError::Foreign(certificate.to_owned());
    let (_, theirs) = X509Certificate::from_der(&theirs).map_err(|_| foreign())?;
    let (_, ours) = X509Certificate::from_der(&ours).map_err(|_| foreign())?;
    // Without the authority nobody is believed at all; and its name is all that two sites' certificates differ in here.
    let made_here = theirs.issuer() == ours.subject() && theirs.subject() != ours.subject();
    if made_here { Ok(number(theirs.raw_serial())) } else { Err(foreign()) }
}

/// What a list holds, and since when; nothing if it is none.
fn entries(list: &CertificateRevocationListDer<'_>) -> Option<Vec<(Vec<u8>, OffsetDateTime)>> {
    let (_, list) = CertificateRevocationList::from_der(list.as_ref()).ok()?;
    let of = |entry: &x509_parser::revocation_list::RevokedCertificate<'_>| {
        Some((number(entry.raw_serial()), OffsetDateTime::from_unix_timestamp(entry.revocation_date.timestamp()).ok()?))
    };
    list.iter_revoked_certificates().map(of).collect()
}

/// A number as it is compared: DER has a zero before those whose first bit is one.
fn number(serial: &[u8]) -> Vec<u8> {
    serial.iter().copied().skip_while(|byte| *byte == 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, Settings};
    use crate::server::{Gate, Limits, serve};
    use crate::{Role, json, pki, tls};
    use bytes::Bytes;
    use hyper::Method;
    use tokio::net::TcpListener;

    /// Whether a client of this name is answered by a server that read the list now, and what it is told if not.
    async fn ask(directory: &Path, server: &str, client: &str) -> Result<(), String> {
        let files = |name: &str| tls::Files::in_directory(directory, name);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Gate { tls: Some(tls::server(&files(server)).unwrap()), token_key: None };
        let handler = |_, _| async { Ok(json(&1)) };
        let task = tokio::spawn(serve(listener, gate, Limits::default(), handler, std::future::pending()));
        let settings = Settings { tls: Some(tls::client(&files(client)).unwrap()), ..Settings::default() };
        let client = Client::new(settings);
        let reply = client
            .send(&address, Method::GET, "/", &[], Bytes::new())
            .await
            .map(drop)
            .map_err(|error| error.to_string());
        task.abort();
        reply
    }

    /// Regression: a key in wrong hands was good until its certificate ended.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_called_back_is_taken_by_nobody_and_all_else_as_before() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        pki::create_site(directory.path(), 10).unwrap();
        let host = ["127.0.0.1".to_owned()];
        for (name, role) in [("bank", Role::Bank), ("bank-b", Role::Bank), ("alice", Role::User), ("bob", Role::User)] {
            pki::issue(directory.path(), name, role, &host, 10).unwrap();
        }
        for refused in [at("ca.pem"), at("ca.key"), at("none.pem")] {
            assert!(revoke(directory.path(), &refused).is_err(), "{}", refused.display());
        }
        ask(directory.path(), "bank", "alice").await.unwrap();
        for (count, name) in ["alice.pem", "bank-b.pem", "alice.pem"].into_iter().enumerate() {
            assert_eq!(revoke(directory.path(), &at(name)).unwrap(), at("ca.crl"));
            let list = list(&at("ca.pem")).unwrap().unwrap();
            assert_eq!(entries(&list).unwrap().len(), (count + 1).min(2));
        }
        let error = ask(directory.path(), "bank", "alice").await.unwrap_err();
        assert!(error.contains("Revoked"), "{error}");
        let error = ask(directory.path(), "bank-b", "bob").await.unwrap_err();
        assert!(error.contains("Revoked"), "{error}");
        ask(directory.path(), "bank", "bob").await.unwrap();
        pki::renew(directory.path(), "alice", Role::User, &[], 10).unwrap();
        ask(directory.path(), "bank", "alice").await.unwrap();
        // A list that cannot be read is not taken for an empty one.
        std::fs::write(at("ca.crl"), "none").unwrap();
        assert!(tls::server(&tls::Files::in_directory(directory.path(), "bank")).is_err());
        assert!(revoke(directory.path(), &at("bob.pem")).is_err());
    }
}
