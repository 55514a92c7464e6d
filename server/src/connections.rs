//! The connections of a set of listeners: how many may be open at once, and how long one may stay silent at its beginning.
//!
//! A connection that is over the bound waits in the kernel's queue (listen(2)) until another one ends, so that callers who
//! connect and say nothing cannot take every descriptor of the agent. Where the descriptors are short all the same (EMFILE,
//! ENFILE, ENOBUFS, ENOMEM of accept(2)) the next attempt comes after a pause: accept would fail again at once, and the
//! queue stays readable. After its preface a connection is HTTP/2's to watch, with pings.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep_until},
};
use tokio_stream::Stream;

use crate::{
    authority::PREFACE_BYTES,
    through::{Inbound, Through},
};

/// Connections that are open at once on all listeners of FilesService.
pub(crate) const FILES_CONNECTIONS_MAX: usize = 512;
/// Connections that are open at once on all listeners of HostService.
pub(crate) const HOST_CONNECTIONS_MAX: usize = 128;
/// From a connection being taken to the last byte of its preface.
const PREFACE_TIME_MAX: Duration = Duration::from_secs(10);
/// Between an accept that failed for want of something and the next one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What connections are taken from.
pub(crate) trait Accept: Send + Sync + 'static {
    /// A connection.
    type Connection: Send + 'static;

    /// The next one.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

impl Accept for TcpListener {
    type Connection = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = TcpListener::accept(self).await?;
        // One that has gone already takes no option; its end is seen when it is read.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}

impl Accept for UnixListener {
    type Connection = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        UnixListener::accept(self).await.map(|(stream, _)| stream)
    }
}

/// The room that the listeners of one set share.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    connections: Arc<Semaphore>,
    preface_time_max: Duration,
}

impl Room {
    /// For so many connections at once.
    pub(crate) fn new(connections_max: usize) -> Self {
        Self { connections: Arc::new(Semaphore::new(connections_max)), preface_time_max: PREFACE_TIME_MAX }
    }
}

/// Under way.
type Taking<S> = Pin<Box<dyn Future<Output = Taken<S>> + Send>>;

/// The connections of one listener, as there is room for them. Never ends and never fails.
pub(crate) struct Incoming<L: Accept> {
    listener: Arc<L>,
    room: Room,
    next: Option<Taking<L::Connection>>,
}

impl<L: Accept> Incoming<L> {
    /// From this listener.
    pub(crate) fn new(listener: L, room: &Room) -> Self {
        Self { listener: Arc::new(listener), room: room.clone(), next: None }
    }
}

impl<L: Accept> Stream for Incoming<L> {
    type Item = io::Result<Taken<L::Connection>>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let next = this.next.get_or_insert_with(|| Box::pin(take(this.listener.clone(), this.room.clone())));
        let taken = ready!(next.as_mut().poll(context));
        this.next = None;
        Poll::Ready(Some(Ok(taken)))
    }
}

async fn take<L: Accept>(listener: Arc<L>, room: Room) -> Taken<L::Connection> {
    let permit = room.connections.acquire_owned().await.expect("the semaphore is never closed");
    let mut is_told = false;
    let inner = loop {
        match listener.accept().await {
            Ok(connection) => break connection,
            // Of a connection that ended before it was taken.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => {
                if !is_told {
                    tracing::error!(%error, "no connection can be taken; it is tried again");
                }
                is_told = true;
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    };
    let end = Box::pin(sleep_until(Instant::now() + room.preface_time_max));
    Through::around(inner, Watched { preface: Some(Preface { end, left: PREFACE_BYTES }), _permit: permit })
}

/// A connection that was taken. Its room is free again when it is dropped.
pub(crate) type Taken<S> = Through<S, Watched>;

/// What watches the beginning of a connection, and holds its room.
pub(crate) struct Watched {
    /// Until it has come.
    preface: Option<Preface>,
    _permit: OwnedSemaphorePermit,
}

struct Preface {
    end: Pin<Box<Sleep>>,
    left: usize,
}

impl Inbound for Watched {
    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        connection: &mut S,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let Some(preface) = &mut self.preface else { return Pin::new(connection).poll_read(context, into) };
        if preface.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no HTTP/2 preface came in time")));
        }
        ready!(Pin::new(connection).poll_read(context, into))?;
        preface.left = preface.left.saturating_sub(into.filled().len() - before);
        if preface.left == 0 {
            self.preface = None;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_stream::StreamExt;

    use super::*;

    /// Connections that are there at once, after so many failures.
    struct Pairs(AtomicU32);

    impl Accept for Pairs {
        type Connection = tokio::io::DuplexStream;

        async fn accept(&self) -> io::Result<Self::Connection> {
            match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
                Ok(_) => Err(io::Error::from_raw_os_error(nix::libc::EMFILE)),
                Err(_) => Ok(tokio::io::duplex(64).0),
            }
        }
    }

    #[tokio::test]
    async fn no_more_are_taken_than_there_is_room_for() {
        let mut incoming = Incoming::new(Pairs(AtomicU32::new(0)), &Room::new(2));
        let first = incoming.next().await.unwrap().unwrap();
        let _second = incoming.next().await.unwrap().unwrap();
        let pending = tokio::time::timeout(Duration::from_millis(50), incoming.next()).await;
        assert!(pending.is_err(), "a third was taken");
        drop(first);
        assert!(incoming.next().await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn want_of_descriptors_is_waited_out() {
        let began = Instant::now();
        let mut incoming = Incoming::new(Pairs(AtomicU32::new(2)), &Room::new(2));
        assert!(incoming.next().await.unwrap().is_ok());
        assert!(began.elapsed() >= ACCEPT_PAUSE * 2);
    }

    #[tokio::test]
    async fn a_silent_one_ends_and_one_with_a_preface_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let room = Room { preface_time_max: Duration::from_millis(200), ..Room::new(4) };
        let mut incoming = Incoming::new(UnixListener::bind(&path).unwrap(), &room);
        let mut silent = UnixStream::connect(&path).await.unwrap();
        let mut taken = incoming.next().await.unwrap().unwrap();
        silent.write_all(&[b'P'; PREFACE_BYTES - 1]).await.unwrap();
        assert_eq!(taken.read_to_end(&mut Vec::new()).await.unwrap_err().kind(), io::ErrorKind::TimedOut);

        let mut speaking = UnixStream::connect(&path).await.unwrap();
        let mut taken = incoming.next().await.unwrap().unwrap();
        speaking.write_all(&[b'P'; PREFACE_BYTES]).await.unwrap();
        taken.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();
        let pending = tokio::time::timeout(room.preface_time_max * 2, taken.read_u8()).await;
        assert!(pending.is_err(), "{pending:?}");
        speaking.write_all(b"x").await.unwrap();
        assert_eq!(taken.read_u8().await.unwrap(), b'x');
    }
}
