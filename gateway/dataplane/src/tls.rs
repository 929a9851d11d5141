//! TLS of the listener and to engines: what is trusted and what is shown.
//!
//! rustls with ring: a C compiler builds it, nothing else is needed, and no process-wide default is touched. HTTP/1.1 is
//! the only protocol on either side. Client certificates are not asked for; callers show keys.

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::config::ListenerTls;
use crate::stream::Stream;

const ALPN: &[u8] = b"http/1.1";

/// Reads what the listener shows.
pub(crate) fn acceptor(files: &ListenerTls) -> Result<TlsAcceptor, String> {
    let chain = certificates("tls_cert", &files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| {
        let path = files.key.display();
        format!("tls_key {path} is refused: it must be a readable PEM file with a private key ({error})")
    })?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| format!("tls_cert and tls_key are refused: {error}"))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// How engines behind `https://` are reached.
pub(crate) struct EngineTls {
    /// From `engine_ca`; else the system's, read when the first such engine is asked.
    connector: OnceLock<Result<TlsConnector, String>>,
}

impl EngineTls {
    /// `ca`: a PEM file with the certificates to trust in place of the system's.
    pub(crate) fn new(ca: Option<&Path>) -> Result<Self, String> {
        let connector = OnceLock::new();
        if let Some(path) = ca {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("engine_ca", path)? {
                let refused = |error| format!("engine_ca {} is refused: {error}", path.display());
                roots.add(certificate).map_err(refused)?;
            }
            let _ = connector.set(Ok(connecting(roots)?));
        }
        Ok(Self { connector })
    }

    /// Shakes hands with the engine `host`, whose certificate must be for that name or address.
    pub(crate) async fn secure(&self, host: &str, stream: TcpStream) -> io::Result<Stream> {
        let connector = self.connector.get_or_init(system_roots).as_ref();
        let connector = connector.map_err(|error| refused(error.as_str()))?;
        let name = ServerName::try_from(host.to_owned()).map_err(refused)?;
        let stream = connector.connect(name, stream).await?;
        Ok(Stream::Tls(Box::new(stream.into())))
    }
}

fn refused(error: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}

fn connecting(roots: RootCertStore) -> Result<TlsConnector, String> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// What this machine trusts (or `SSL_CERT_FILE` names).
fn system_roots() -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this machine has no trusted certificates; name those of your engines with engine_ca".to_owned());
    }
    connecting(roots)
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let refused = |why: &dyn Display| {
        let path = path.display();
        format!("{what} {path} is refused: it must be a readable PEM file with certificates ({why})")
    };
    match read {
        Ok(found) if found.is_empty() => Err(refused(&"none is in it")),
        Ok(found) => Ok(found),
        Err(error) => Err(refused(&error)),
    }
}
