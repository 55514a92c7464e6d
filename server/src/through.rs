//! A connection whose inbound bytes pass through something first. What goes out passes untouched: written once, for all
//! who look at what comes in.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// What looks at the bytes that come in.
pub(crate) trait Inbound: Unpin {
    /// As [`AsyncRead::poll_read`], from this connection.
    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        connection: &mut S,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>;
}

/// A connection, and what its inbound bytes pass through.
pub(crate) struct Through<S, I> {
    connection: S,
    inbound: I,
}

impl<S, I> Through<S, I> {
    /// Around a connection.
    pub(crate) fn around(connection: S, inbound: I) -> Self {
        Self { connection, inbound }
    }
}

impl<S: AsyncRead + Unpin, I: Inbound> AsyncRead for Through<S, I> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.inbound.poll_read(&mut this.connection, context, into)
    }
}

impl<S: AsyncWrite + Unpin, I: Unpin> AsyncWrite for Through<S, I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}

impl<S: Connected, I> Connected for Through<S, I> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.connection.connect_info()
    }
}
