//! TLS configurations: both ends always show a certificate of the one authority.

use crate::keyfile::{self, KeyFileError};
use crate::{Peer, Role, clock, revoked};
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Which files make a party.
#[derive(Debug, Clone)]
pub struct Files {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// The party's certificate.
    pub certificate: PathBuf,
    /// The party's key, mode 0600.
    pub key: PathBuf,
}

impl Files {
    /// The files of `name` as `ullage pki` lays them out.
    pub fn in_directory(directory: &Path, name: &str) -> Self {
        Self {
            authority: directory.join("ca.pem"),
            certificate: directory.join(format!("{name}.pem")),
            key: directory.join(format!("{name}.key")),
        }
    }
}

/// Why a configuration cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The key's file.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// A file that is no PEM of the right kind.
    #[error("read {0}: {1}")]
    Pem(PathBuf, rustls::pki_types::pem::Error),
    /// Nobody would take it any more.
    #[error("{path} was good until {until}: {}", .peer.renewal())]
    Expired {
        /// The certificate's file.
        path: PathBuf,
        /// When it ended.
        until: String,
        /// Whose it is.
        peer: Peer,
    },
    /// The parts do not fit together.
    #[error("set TLS up: {0}")]
    Rustls(#[from] rustls::Error),
    /// The certificates of clients cannot be checked.
    #[error("set TLS up: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// What the files hold; the list of certificates that were called back, if there is one.
struct Loaded {
    roots: Arc<RootCertStore>,
    own: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    revoked: Option<CertificateRevocationListDer<'static>>,
}

fn load(files: &Files) -> Result<Loaded, TlsError> {
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, TlsError> {
        CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| TlsError::Pem(path.to_owned(), error))
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(&files.authority)? {
        roots.add(authority)?;
    }
    let key = keyfile::read(&files.key)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| TlsError::Pem(files.key.clone(), error))?;
    let own = certificates(&files.certificate)?;
    if let Some(certificate) = own.first() {
        check_age(&files.certificate, certificate)?;
    }
    let revoked = revoked::list(&files.authority).map_err(|(path, error)| TlsError::Pem(path, error))?;
    Ok(Loaded { roots: Arc::new(roots), own, key, revoked })
}

/// Says what the other end would not: it only ends the connection.
fn check_age(path: &Path, certificate: &[u8]) -> Result<(), TlsError> {
    match certificate_in(certificate) {
        Some(own) if own.has_ended() => {
            Err(TlsError::Expired { path: path.to_owned(), until: own.until, peer: own.peer })
        }
        _ => Ok(()),
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// For a server: clients without a certificate of the authority get no connection.
///
/// # Errors
/// When the files are missing, readable by others, or do not fit.
pub fn server(files: &Files) -> Result<Arc<ServerConfig>, TlsError> {
    let Loaded { roots, own, key, revoked } = load(files)?;
    // Another authority in the same file has no list here.
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .with_crls(revoked)
        .only_check_end_entity_revocation()
        .allow_unknown_revocation_status()
        .build()?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(own, key)?;
    // Who resumes is not looked at again: whether its certificate has ended, say.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// For a client.
///
/// # Errors
/// As [`server`].
pub fn client(files: &Files) -> Result<Arc<ClientConfig>, TlsError> {
    let Loaded { roots, own, key, revoked } = load(files)?;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
        .with_crls(revoked)
        .only_check_end_entity_revocation()
        .allow_unknown_revocation_status()
        .build()?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_webpki_verifier(verifier)
        .with_client_auth_cert(own, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Name and role in a certificate that has already been verified; `None` if it is not of our making.
pub fn peer_of(certificate: &[u8]) -> Option<Peer> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let role: Role = subject.iter_organizational_unit().next()?.as_str().ok()?.parse().ok()?;
    Some(Peer { name, role })
}

/// What the other side of a connection has shown.
pub fn shown_on(connection: &rustls::CommonState) -> Option<Certificate> {
    connection.peer_certificates().and_then(|chain| certificate_in(chain.first()?))
}

/// What a certificate's file says.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// Whose it is.
    pub peer: Peer,
    /// From when on it is good, seconds since 1970.
    pub from_secs: i64,
    /// Until when.
    pub until_secs: i64,
    /// The same for people.
    pub until: String,
}

/// What a certificate's file says; nothing if it is not of our making.
///
/// # Errors
/// When it cannot be read.
pub fn certificate_in_file(path: &Path) -> Result<Option<Certificate>, TlsError> {
    let certificate = CertificateDer::from_pem_file(path).map_err(|error| TlsError::Pem(path.to_owned(), error))?;
    Ok(certificate_in(&certificate))
}

impl Certificate {
    /// Whether it is good no more.
    pub fn has_ended(&self) -> bool {
        self.until_secs < clock::now_secs().cast_signed()
    }
}

fn certificate_in(certificate: &[u8]) -> Option<Certificate> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let peer = peer_of(certificate)?;
    let (from, until) = (parsed.validity().not_before, parsed.validity().not_after);
    Some(Certificate { peer, from_secs: from.timestamp(), until_secs: until.timestamp(), until: until.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki;
    use std::time::{Duration, Instant};

    /// Regression: a certificate that had ended was still taken from whoever resumed, without end.
    #[test]
    fn nobody_resumes() {
        let directory = tempfile::tempdir().unwrap();
        pki::create_authority(directory.path(), 1).unwrap();
        pki::issue(directory.path(), "bank", Role::Bank, &["127.0.0.1".into()], 1).unwrap();
        let files = Files::in_directory(directory.path(), "bank");
        let server = server(&files).unwrap();
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let Loaded { roots, own, key, .. } = load(&files).unwrap();
            let client = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[version]).unwrap();
            let client = Arc::new(client.with_root_certificates(roots).with_client_auth_cert(own, key).unwrap());
            for _ in 0..3 {
                let mut here = rustls::ClientConnection::new(client.clone(), "127.0.0.1".try_into().unwrap()).unwrap();
                let mut there = rustls::ServerConnection::new(server.clone()).unwrap();
                while here.wants_write() || there.wants_write() {
                    let mut bytes = Vec::new();
                    here.write_tls(&mut bytes).unwrap();
                    there.read_tls(&mut bytes.as_slice()).unwrap();
                    there.process_new_packets().unwrap();
                    bytes.clear();
                    there.write_tls(&mut bytes).unwrap();
                    here.read_tls(&mut bytes.as_slice()).unwrap();
                    here.process_new_packets().unwrap();
                }
                assert_eq!(there.handshake_kind(), Some(rustls::HandshakeKind::Full), "{version:?}");
            }
        }
    }

    /// The other end took no connection, and nobody said why.
    #[test]
    fn a_certificate_that_has_ended_is_named() {
        let directory = tempfile::tempdir().unwrap();
        pki::create_authority(directory.path(), 1).unwrap();
        pki::issue(directory.path(), "alice", Role::User, &[], 0).unwrap();
        let files = Files::in_directory(directory.path(), "alice");
        let until = Instant::now() + Duration::from_secs(5);
        let error = loop {
            if let Err(error) = client(&files) {
                break error.to_string();
            }
            assert!(Instant::now() < until, "it ends now");
            std::thread::sleep(Duration::from_millis(100));
        };
        assert!(error.contains("alice.pem") && error.contains("alice --role user --renew"), "{error}");
        pki::renew(directory.path(), "alice", Role::User, &[], 1).unwrap();
        client(&files).unwrap();
    }
}
