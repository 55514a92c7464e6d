//! Over TLS: who is believed, and what is said where nobody is. Certificates are made anew by each test.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
};

use dormouse_client::{
    Endpoint, FilesClient, Kind, TlsFault, Token, Trust,
    proto::files::v1::{StatRequest, StatResponse},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, UnixStream},
    task::JoinHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer},
    },
};

use crate::fake::{Host, Reply, file, quick};

/// A host behind TLS, and the file of the authority that issued its certificate.
struct Secure {
    host: Host,
    endpoint: Endpoint,
    directory: TempDir,
    front: JoinHandle<()>,
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.front.abort();
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

impl Secure {
    /// Its certificate is for `name`, its address always 127.0.0.1.
    async fn new(name: &str, replies: impl IntoIterator<Item = Reply>) -> Self {
        let authority = authority("one");
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), authority.pem()).unwrap();
        std::fs::write(directory.path().join("other.pem"), self::authority("two").pem()).unwrap();
        std::fs::write(directory.path().join("anew.pem"), self::authority("one").pem()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from(certificate.der().to_vec())],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let host = Host::new(replies).await;
        let Endpoint::Unix(behind) = host.endpoint() else { panic!() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let front = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, behind) = (acceptor.clone(), behind.clone());
                tokio::spawn(async move {
                    // A client that does not believe the certificate ends the handshake.
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    let mut server = UnixStream::connect(behind).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { host, endpoint, directory, front }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn client(&self, ca_file: &str) -> FilesClient {
        let trust = Trust::ca_file(self.file(ca_file)).unwrap();
        FilesClient::new(self.endpoint.channel_with(&trust)).with_options(quick())
    }

    /// `dormouse files stat`, with `system` as the authorities of the system.
    async fn command(&self, system: &str, words: &[&str], environment: &[(&str, PathBuf)]) -> (i32, String, String) {
        run(&self.endpoint, self.file(system), words, environment).await
    }
}

async fn run(
    endpoint: &Endpoint,
    system: PathBuf,
    words: &[&str],
    environment: &[(&str, PathBuf)],
) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command.env_clear().env("SSL_CERT_FILE", system).envs(environment.iter().cloned()).stdin(Stdio::null());
    command.args(["files", "stat", "w:/a", "--endpoint", &endpoint.to_string()]).args(words);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn found() -> Reply {
    Reply::Stat(StatResponse { file: Some(file("/a", 3, "e1")), ..StatResponse::default() })
}

fn stat() -> StatRequest {
    StatRequest { workspace: "w".into(), path: "/a".into(), ..StatRequest::default() }
}

#[tokio::test]
async fn a_host_with_a_certificate_of_the_named_authority_answers() {
    let secure = Secure::new("127.0.0.1", [found()]).await;
    let options = dormouse_client::Options { token: Token::new("s3cret"), ..quick() };
    let answer = secure.client("ca.pem").with_options(options).stat(stat()).await.unwrap();
    assert_eq!(answer.file.unwrap().path, "/a");
    assert_eq!(secure.host.header(0, "authorization").as_deref(), Some("Bearer s3cret"));
}

#[tokio::test]
async fn a_certificate_of_another_authority_or_name_is_refused_at_once() {
    for (name, ca_file, fault) in [
        ("127.0.0.1", "other.pem", TlsFault::UnknownAuthority),
        ("127.0.0.1", "anew.pem", TlsFault::UnknownAuthority),
        ("127.0.0.2", "ca.pem", TlsFault::WrongName),
        ("elsewhere.example", "ca.pem", TlsFault::WrongName),
    ] {
        let secure = Secure::new(name, [found()]).await;
        let error = secure.client(ca_file).stat(stat()).await.unwrap_err();
        assert_eq!((error.kind(), error.tls_fault()), (&Kind::DependencyUnavailable, Some(fault)), "{error:?}");
        // It would be the same the next time.
        assert_eq!((error.retryable(), error.attempts()), (false, 1));
        assert!(secure.host.asked().is_empty(), "nothing is sent to a host that is not believed");
    }
}

#[tokio::test]
async fn the_command_line_names_its_authority_by_flag_environment_file_or_system() {
    let secure = Secure::new("127.0.0.1", vec![found(); 4]).await;
    let ca = secure.file("ca.pem");
    let config = secure.file("client.toml");
    std::fs::write(&config, format!("ca_file = {ca:?}\n")).unwrap();
    let flag = secure.command("other.pem", &["--ca-file", ca.to_str().unwrap()], &[]).await;
    let environment = secure.command("other.pem", &[], &[("DORMOUSE_CA_FILE", ca.clone())]).await;
    let file = secure.command("other.pem", &[], &[("DORMOUSE_CONFIG", config)]).await;
    let system = secure.command("ca.pem", &[], &[]).await;
    for (code, out, err) in [flag, environment, file, system] {
        assert!(code == 0 && out.contains("/a"), "{code} {out} {err}");
    }
    // A named file stands in the place of the system's.
    let other = secure.file("other.pem");
    let (code, _, err) = secure.command("ca.pem", &["--ca-file", other.to_str().unwrap()], &[]).await;
    assert_eq!((code, secure.host.asked().len()), (6, 4), "{err}");
}

#[tokio::test]
async fn the_command_line_says_what_to_do_about_a_certificate() {
    let secure = Secure::new("127.0.0.1", []).await;
    // No such file: a system without authorities.
    for system in ["other.pem", "none.pem"] {
        let (code, out, err) = secure.command(system, &[], &[]).await;
        assert_eq!((code, &*out), (6, ""), "{err}");
        assert!(err.contains("--ca-file") && err.contains(&secure.endpoint.to_string()), "{err}");
    }
    let missing = secure.file("none.pem");
    let (code, _, err) = secure.command("other.pem", &["--ca-file", missing.to_str().unwrap()], &[]).await;
    assert!(code == 2 && err.contains("none.pem") && err.contains("PEM"), "{code} {err}");
    let elsewhere = Secure::new("elsewhere.example", []).await;
    let (code, _, err) = elsewhere.command("ca.pem", &[], &[]).await;
    assert!(code == 6 && err.contains("another name") && !err.contains("--ca-file"), "{code} {err}");
}

#[tokio::test]
async fn a_server_without_tls_is_called_that() {
    let secure = Secure::new("127.0.0.1", []).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint: Endpoint = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    // What an HTTP/1.1 server says to bytes that it does not know.
    let server = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut first = [0; 16];
            let _ = client.read(&mut first).await;
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            let _ = client.shutdown().await;
            // Until the client has read it and left: what is closed with bytes unread is reset.
            let _ = client.read_to_end(&mut Vec::new()).await;
        }
    });
    let trust = Trust::ca_file(secure.file("ca.pem")).unwrap();
    let error = FilesClient::new(endpoint.channel_with(&trust)).with_options(quick()).stat(stat()).await.unwrap_err();
    assert_eq!((error.tls_fault(), error.attempts()), (Some(TlsFault::NotTls), 1), "{error:?}");
    let (code, _, err) = run(&endpoint, secure.file("ca.pem"), &[], &[]).await;
    assert!(code == 6 && err.contains("does not speak TLS") && err.contains("http://HOST:PORT"), "{code} {err}");
    server.abort();
}
