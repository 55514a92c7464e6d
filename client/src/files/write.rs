//! Write: a file's content as a stream, of any size, with its count and CRC-32C at the end.
//!
//! A source is read from the start for every attempt, so what can be sent again depends on it: bytes and files always, a
//! one-pass reader as long as what was read of it still fits in memory.

use std::io::SeekFrom;

use bytes::{Bytes, BytesMut};
use dormouse_proto::files::v1::{WriteFinish, WriteRequest, WriteResponse, WriteStart, write_request::Message};
use tokio::{
    fs::File,
    io::{AsyncRead, AsyncReadExt, AsyncSeekExt},
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::service;
use crate::{
    call::Caller,
    error::{Error, Kind},
    method::Method,
};

const METHOD: Method = Method::WRITE;
const PIECE_BYTES: usize = 256 * 1024;
/// Pieces between the source and the connection.
const PIECES_AHEAD: usize = 4;
/// What is kept of a one-pass reader for another attempt.
const KEPT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Where the content comes from.
pub struct WriteSource {
    source: Source,
    told: Option<Told>,
}

/// Hears how many bytes of an attempt have gone out.
type Told = Box<dyn FnMut(u64) + Send>;

enum Source {
    Bytes(Bytes),
    File(File),
    Reader { reader: Box<dyn AsyncRead + Send + Unpin>, kept: BytesMut, lost: bool },
}

impl WriteSource {
    /// Content in memory.
    pub fn bytes(content: impl Into<Bytes>) -> Self {
        Self::new(Source::Bytes(content.into()))
    }

    /// A regular file, sent from its start.
    pub fn file(file: File) -> Self {
        Self::new(Source::File(file))
    }

    /// Anything that can be read once, such as standard input. Its first 8 MiB are kept for another attempt.
    pub fn reader(reader: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self::new(Source::Reader { reader: Box::new(reader), kept: BytesMut::new(), lost: false })
    }

    /// The same, telling after each piece how many bytes of the attempt have gone out; another attempt begins at 0 again.
    #[must_use]
    pub fn with_progress(mut self, told: impl FnMut(u64) + Send + 'static) -> Self {
        self.told = Some(Box::new(told));
        self
    }

    fn new(source: Source) -> Self {
        Self { source, told: None }
    }
}

pub(crate) async fn run(caller: &Caller, start: WriteStart, source: WriteSource) -> Result<WriteResponse, Error> {
    let mut run = caller.begin(METHOD, &start.workspace);
    let WriteSource { mut source, mut told } = source;
    loop {
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let request = run.stream_request(ReceiverStream::new(receiver));
        let mut service = service(caller.channel.clone());
        let answer = {
            let call = run.attempt(service.write(request));
            let feed = feed(&mut source, start.clone(), sender, told.as_mut());
            tokio::pin!(call, feed);
            let mut fed = false;
            // The host may answer before it has everything: a refusal, or a replay. The source is then left alone.
            loop {
                tokio::select! {
                    answer = &mut call => break Ok(answer),
                    result = &mut feed, if !fed => match result {
                        Ok(()) => fed = true,
                        Err(failure) => break Err(failure),
                    },
                }
            }
        };
        let error = match answer {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(error)) => error,
            // The call is dropped without its `finish`, so nothing becomes visible under the path.
            Err(failure) => {
                let fact = format!("the content to write could not be read: {failure}");
                return Err(run.give_up(Error::local(METHOD, Kind::Source, Code::Aborted, fact)));
            }
        };
        if let Source::Reader { lost: true, .. } = source {
            return Err(run.give_up(error));
        }
        run.recover(error).await?;
    }
}

/// Sends the whole content, or as much as the call still listens to. May be dropped at any await.
async fn feed(
    source: &mut Source,
    start: WriteStart,
    sender: mpsc::Sender<WriteRequest>,
    told: Option<&mut Told>,
) -> std::io::Result<()> {
    let mut out = Out { sender, told, size: 0, crc32c: 0 };
    if !out.send(Message::Start(start)).await {
        return Ok(());
    }
    match source {
        Source::Bytes(content) => {
            let mut rest = content.clone();
            while !rest.is_empty() {
                if !out.data(rest.split_to(rest.len().min(PIECE_BYTES))).await {
                    return Ok(());
                }
            }
        }
        Source::File(file) => {
            file.seek(SeekFrom::Start(0)).await?;
            loop {
                let piece = piece(file).await?;
                if piece.is_empty() {
                    break;
                }
                if !out.data(piece).await {
                    return Ok(());
                }
            }
        }
        Source::Reader { reader, kept, lost } => {
            let mut again = kept.clone().freeze();
            while !again.is_empty() {
                if !out.data(again.split_to(again.len().min(PIECE_BYTES))).await {
                    return Ok(());
                }
            }
            loop {
                let piece = piece(reader).await?;
                if piece.is_empty() {
                    break;
                }
                if !*lost && kept.len() + piece.len() <= KEPT_BYTES_MAX {
                    kept.extend_from_slice(&piece);
                } else {
                    *lost = true;
                    *kept = BytesMut::new();
                }
                if !out.data(piece).await {
                    return Ok(());
                }
            }
        }
    }
    let finish = WriteFinish { size_bytes: i64::try_from(out.size).unwrap_or(i64::MAX), crc32c: Some(out.crc32c) };
    out.send(Message::Finish(finish)).await;
    Ok(())
}

/// One read, so that a slow reader's bytes go out as they come. A cancelled read has taken nothing.
async fn piece(reader: &mut (impl AsyncRead + Unpin + ?Sized)) -> std::io::Result<Bytes> {
    let mut piece = BytesMut::with_capacity(PIECE_BYTES);
    reader.read_buf(&mut piece).await?;
    Ok(piece.freeze())
}

struct Out<'a> {
    sender: mpsc::Sender<WriteRequest>,
    told: Option<&'a mut Told>,
    size: u64,
    crc32c: u32,
}

impl Out<'_> {
    async fn data(&mut self, piece: Bytes) -> bool {
        self.size += piece.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &piece);
        let listens = self.send(Message::Data(piece)).await;
        if let Some(told) = &mut self.told {
            told(self.size);
        }
        listens
    }

    /// Whether the call still listens.
    async fn send(&mut self, message: Message) -> bool {
        self.sender.send(WriteRequest { message: Some(message) }).await.is_ok()
    }
}
