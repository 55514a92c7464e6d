//! The Unix socket by which Firecracker and Cloud Hypervisor reach a machine's vsock: `CONNECT port`, `OK port`, then bytes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::watch,
};

/// A monitor's socket that leads to another one.
pub struct Hybrid {
    /// Whether the guest's bytes are thrown away.
    swallow: Arc<watch::Sender<bool>>,
    /// Counts the cuts of all connections.
    cut: Arc<watch::Sender<u64>>,
}

impl Hybrid {
    pub fn serve(path: &Path, guest: &Path, port: u32) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let this = Self { swallow: Arc::new(watch::Sender::new(false)), cut: Arc::new(watch::Sender::new(0)) };
        let (swallow, cut, guest) = (this.swallow.clone(), this.cut.clone(), guest.to_owned());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (swallow, mut cut, guest) = (swallow.subscribe(), cut.subscribe(), guest.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = connection(stream, guest, port, swallow) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        this
    }

    pub fn swallow(&self, swallow: bool) {
        self.swallow.send_replace(swallow);
    }

    pub fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }
}

async fn connection(stream: UnixStream, guest: PathBuf, port: u32, swallow: watch::Receiver<bool>) {
    let (from_host, mut to_host) = stream.into_split();
    let mut from_host = BufReader::new(from_host);
    let mut line = String::new();
    from_host.read_line(&mut line).await.unwrap();
    assert_eq!(line, format!("CONNECT {port}\n"));
    let (mut from_guest, mut to_guest) = UnixStream::connect(guest).await.unwrap().into_split();
    to_host.write_all(b"OK 1073741825\n").await.unwrap();
    let there = async {
        let _ = tokio::io::copy(&mut from_host, &mut to_guest).await;
    };
    let back = async {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_guest.read(&mut bytes).await {
            if !*swallow.borrow() && to_host.write_all(&bytes[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}
