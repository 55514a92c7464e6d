//! Whose certificates a connection over TLS believes, and what a failed handshake says.
//!
//! Verification of the chain and of the host's name is always on: nothing here turns it off. What is sent and when is not
//! known here.

use std::{
    error::Error as Cause,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio_rustls::rustls::{
    CertificateError, Error as TlsError, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tonic::transport::ClientTlsConfig;

/// A bundle of all public authorities has about 250 KB.
const CA_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Causes of a failure that are looked at.
const CAUSES_MAX: usize = 16;

/// The authorities whose certificates are believed: those of the system, or those of one file and no others.
#[derive(Debug, Clone, Default)]
pub struct Trust(Option<Arc<RootCertStore>>);

/// Why a file is no list of authorities.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// It cannot be read, or is larger than 4 MiB.
    #[error("CA file {path:?}: {error}; name a readable file with certificates in PEM")]
    Unreadable {
        /// As it was named.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not PEM, or a block of it is no certificate.
    #[error(
        "CA file {path:?}: certificate {number} cannot be read ({fact}); it must be PEM (BEGIN CERTIFICATE), not DER"
    )]
    Malformed {
        /// As it was named.
        path: PathBuf,
        /// From 1.
        number: usize,
        /// What is wrong with it.
        fact: String,
    },
    /// There is no certificate in it.
    #[error("CA file {path:?} holds no certificate; name a PEM file with a BEGIN CERTIFICATE block")]
    Empty {
        /// As it was named.
        path: PathBuf,
    },
}

impl Trust {
    /// The authorities that the system trusts; where `SSL_CERT_FILE` or `SSL_CERT_DIR` is set, those that it names.
    pub fn system() -> Self {
        Self::default()
    }

    /// The authorities of a PEM file, in place of the system's. Read once, now.
    ///
    /// # Errors
    /// For a file that cannot be read, has no certificate, or has one that is malformed.
    pub fn ca_file(path: impl AsRef<Path>) -> Result<Self, TrustError> {
        let path = path.as_ref().to_owned();
        let pem = match limited(&path) {
            Ok(pem) => pem,
            Err(error) => return Err(TrustError::Unreadable { path, error }),
        };
        let mut roots = RootCertStore::empty();
        for (index, found) in CertificateDer::pem_slice_iter(&pem).enumerate() {
            let added = found.map_err(|error| error.to_string());
            let added = added.and_then(|der| roots.add(der).map_err(|error| error.to_string()));
            if let Err(fact) = added {
                return Err(TrustError::Malformed { path, number: index + 1, fact });
            }
        }
        if roots.is_empty() { Err(TrustError::Empty { path }) } else { Ok(Self(Some(Arc::new(roots)))) }
    }

    pub(crate) fn config(&self) -> ClientTlsConfig {
        let config = ClientTlsConfig::new().timeout(HANDSHAKE_TIMEOUT);
        match &self.0 {
            Some(roots) => config.trust_anchors(roots.roots.iter().cloned()),
            None => config.with_native_roots(),
        }
    }
}

/// Whether a certificate can be for it: a DNS name or an IP address (RFC 9525).
pub(crate) fn can_be_certified(host: &str) -> bool {
    ServerName::try_from(host).is_ok()
}

fn limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if File::open(path)?.take(CA_FILE_BYTES_MAX + 1).read_to_end(&mut bytes)? as u64 > CA_FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {CA_FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// The system has no authorities, and no file was named.
#[derive(Debug, thiserror::Error)]
#[error("this system has no certificates of authorities")]
pub(crate) struct NoAuthorities;

/// What keeps a connection from being a trusted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFault {
    /// The certificate was not issued by an authority that is believed here.
    UnknownAuthority,
    /// The certificate is for another name than the endpoint's.
    WrongName,
    /// The certificate is expired, not valid yet, or otherwise wrong.
    BadCertificate,
    /// What answers does not speak TLS, or not a version of it that is still safe.
    NotTls,
    /// The connection ended in the middle of the handshake; a server that does not speak TLS does that too.
    BrokenOff,
}

impl TlsFault {
    /// The fault among a failure's causes, if it is one of TLS.
    pub(crate) fn of(error: &(dyn Cause + 'static)) -> Option<Self> {
        let causes = std::iter::successors(Some(error), |error: &&(dyn Cause + 'static)| Cause::source(*error));
        causes.take(CAUSES_MAX).find_map(|cause| {
            if cause.is::<NoAuthorities>() {
                return Some(Self::UnknownAuthority);
            }
            let failure = cause.downcast_ref::<io::Error>()?;
            // An io::Error's own source is the next but one: what it wraps must be asked for.
            match failure.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
                Some(error) => Self::of_handshake(error),
                // The words of tokio-rustls, which has no type for this.
                None if failure.to_string() == "tls handshake eof" => Some(Self::BrokenOff),
                None => None,
            }
        })
    }

    fn of_handshake(error: &TlsError) -> Option<Self> {
        use CertificateError as C;
        match error {
            // A signature that does not hold: of an authority that was made anew under its old name.
            TlsError::InvalidCertificate(C::UnknownIssuer | C::BadSignature) => Some(Self::UnknownAuthority),
            TlsError::InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. }) => {
                Some(Self::WrongName)
            }
            TlsError::InvalidCertificate(_) | TlsError::NoCertificatesPresented => Some(Self::BadCertificate),
            TlsError::InvalidMessage(_) | TlsError::PeerIncompatible(_) | TlsError::InappropriateMessage { .. } => {
                Some(Self::NotTls)
            }
            _ => None,
        }
    }

    /// Another attempt would end in the same way.
    pub(crate) fn lasts(self) -> bool {
        self != Self::BrokenOff
    }

    pub(crate) fn fact(self) -> &'static str {
        match self {
            Self::UnknownAuthority => "the server's certificate is of no authority that is trusted here",
            Self::WrongName => "the server's certificate is for another name",
            Self::BadCertificate => "the server's certificate is not valid",
            Self::NotTls => "the server does not speak TLS there",
            Self::BrokenOff => "the server ended the connection before TLS was agreed, or does not speak TLS there",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: Option<&[u8]>, expect: &str) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let error = Trust::ca_file(&path).unwrap_err().to_string();
        assert!(error.contains(expect) && error.contains("ca.pem") && error.contains("PEM"), "{error}");
    }

    #[test]
    fn a_file_without_authorities_is_refused_by_name() {
        check(None, "No such file");
        check(Some(b""), "holds no certificate");
        check(Some(b"\x30\x82\x01\x00"), "holds no certificate");
        check(Some(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "certificate 1 cannot be read");
        check(Some(b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"), "certificate 1 cannot be read");
        check(Some(&vec![b' '; CA_FILE_BYTES_MAX as usize + 1]), "more than");
    }

    #[test]
    fn a_file_with_a_certificate_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let authority = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        std::fs::write(&path, format!("# a comment\n{0}\n{0}", authority.cert.pem())).unwrap();
        assert!(Trust::ca_file(&path).is_ok());
    }

    #[test]
    fn a_lost_connection_is_no_fault_of_tls() {
        assert_eq!(TlsFault::of(&io::Error::from(io::ErrorKind::ConnectionRefused)), None);
        let wrapped =
            io::Error::new(io::ErrorKind::InvalidData, TlsError::InvalidCertificate(CertificateError::Expired));
        assert_eq!(TlsFault::of(&wrapped), Some(TlsFault::BadCertificate));
        assert_eq!(TlsFault::of(&NoAuthorities), Some(TlsFault::UnknownAuthority));
    }
}
