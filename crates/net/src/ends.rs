//! Certificates end while servers run, which learn of new ones at their next start.

use crate::clock;
use crate::tls::{self, Certificate, Files, TlsError};
use std::path::Path;
use std::time::Duration;

const DAY: u64 = 86_400;
/// So long before the end it is said, each day.
const BEFORE: u64 = 30 * DAY;

/// Says in the log each day that a server's certificate will end soon, or has ended: nobody takes its connections then. Of the one that the file
/// holds when this is called; the future never completes.
///
/// # Errors
/// When the file cannot be read.
pub fn warnings(files: &Files) -> Result<impl Future<Output = ()> + Send + use<>, TlsError> {
    let path = files.certificate.clone();
    let own = tls::certificate_in_file(&path)?;
    Ok(async move {
        let Some(own) = own else { return std::future::pending().await };
        loop {
            let now = clock::now_secs();
            if let Some(warning) = warning(&path, &own, now) {
                tracing::warn!("{warning}");
            }
            tokio::time::sleep(Duration::from_secs(until_next(&own, now))).await;
        }
    })
}

/// What is to be said of a certificate now.
fn warning(path: &Path, own: &Certificate, now: u64) -> Option<String> {
    let left = own.until_secs.saturating_sub(now.cast_signed());
    let state = match left {
        ..0 => "was good until",
        _ if left.cast_unsigned() < BEFORE => "is good until",
        _ => return None,
    };
    let (path, until, renewal) = (path.display(), &own.until, own.peer.renewal());
    let so = if left < 0 { "nobody takes this server any more" } else { "nobody takes this server then" };
    Some(format!("{path} {state} {until}, and {so}: {renewal}, and a restart takes that"))
}

/// Seconds until there may be something else to be said.
fn until_next(own: &Certificate, now: u64) -> u64 {
    match u64::try_from(own.until_secs.saturating_sub(now.cast_signed())) {
        Ok(left) => DAY.min(left + 1),
        Err(_) => DAY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Role, pki};

    /// It was refused by all from one moment to the next, and its own log said nothing.
    #[test]
    fn a_server_says_that_its_certificate_ends_before_it_does_and_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        pki::create_authority(directory.path(), 3650).unwrap();
        pki::issue(directory.path(), "bank", Role::Bank, &[], 365).unwrap();
        let path = Files::in_directory(directory.path(), "bank").certificate;
        let own = tls::certificate_in_file(&path).unwrap().unwrap();
        let end = own.until_secs.cast_unsigned();
        let said = |now| warning(&path, &own, now);
        assert_eq!(said(end - BEFORE), None);
        let before = said(end - BEFORE + 1).unwrap();
        assert!(before.contains("bank.pem is good until") && before.contains("issue DIR bank --role bank"), "{before}");
        let after = said(end + 1).unwrap();
        assert!(after.contains("was good until") && after.contains("any more"), "{after}");
        assert_eq!(
            [end - 40 * DAY, end - DAY / 2, end, end + 9].map(|now| until_next(&own, now)),
            [DAY, DAY / 2 + 1, 1, DAY]
        );
        // A file that is not there is an error.
        assert!(warnings(&Files::in_directory(directory.path(), "missing")).is_err());
    }
}
