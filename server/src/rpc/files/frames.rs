//! The body of a Read's answer. The generated code copies every message into one buffer; here the bytes of a file go out as
//! they lie in memory, behind a few bytes that hold the other fields.
//!
//! `data` comes last in each message so that nothing follows it: a parser takes fields in any order (protobuf, "Encoding").

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes, BytesMut};
use dormouse_proto::files::v1;
use http::HeaderMap;
use http_body::{Body, Frame};
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len},
};
use tokio_stream::Stream;
use tonic::Status;

use crate::rpc::status;

/// Data of so many bytes is copied behind the other fields: a frame of its own costs more.
const COPIED_BYTES_MAX: usize = 8 << 10;
/// The number of `ReadResponse.data`.
const DATA: u32 = 4;
/// A flag and a length before each message (gRPC over HTTP/2, "Length-Prefixed-Message").
const PREFIX_BYTES: usize = 5;

/// The messages of a Read as the frames of a body.
pub struct Frames<S> {
    messages: S,
    /// Of the message whose other fields were just sent.
    data: Bytes,
    ended: bool,
}

impl<S> Frames<S> {
    /// Of these messages.
    pub fn new(messages: S) -> Self {
        Self { messages, data: Bytes::new(), ended: false }
    }

    fn end(&mut self, status: Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.ended = true;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }
}

/// What goes out before a message's data, and the data where that goes out by itself.
fn encode(mut message: v1::ReadResponse) -> Result<(Bytes, Bytes), Status> {
    let data = std::mem::take(&mut message.data);
    let data_bytes = match data.len() {
        0 => 0,
        count => key_len(DATA) + encoded_len_varint(count as u64) + count,
    };
    let bytes = message.encoded_len() + data_bytes;
    let length = u32::try_from(bytes).map_err(|_| status::internal("a message of a Read is too long"))?;
    let is_copied = data.len() <= COPIED_BYTES_MAX;
    let mut head = BytesMut::with_capacity(PREFIX_BYTES + bytes - if is_copied { 0 } else { data.len() });
    head.put_u8(0);
    head.put_u32(length);
    message.encode_raw(&mut head);
    if !data.is_empty() {
        encode_key(DATA, WireType::LengthDelimited, &mut head);
        encode_varint(data.len() as u64, &mut head);
    }
    if is_copied {
        head.put_slice(&data);
        return Ok((head.freeze(), Bytes::new()));
    }
    Ok((head.freeze(), data))
}

impl<S: Stream<Item = Result<v1::ReadResponse, Status>> + Unpin> Body for Frames<S> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        if !this.data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.data)))));
        }
        let message = match ready!(Pin::new(&mut this.messages).poll_next(context)) {
            None => return this.end(status::done()),
            Some(message) => message,
        };
        match message.and_then(encode) {
            Ok((head, data)) => {
                this.data = data;
                Poll::Ready(Some(Ok(Frame::data(head))))
            }
            Err(status) => this.end(status),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use tonic::Code;

    use super::*;

    /// The data frames of these messages and the status at their end.
    async fn frames(messages: Vec<Result<v1::ReadResponse, Status>>) -> (Vec<Bytes>, Status) {
        let mut body = Frames::new(tokio_stream::iter(messages));
        let mut data = Vec::new();
        loop {
            let frame = body.frame().await.expect("trailers come last").unwrap();
            match frame.into_data() {
                Ok(bytes) => data.push(bytes),
                Err(frame) => {
                    assert!(body.is_end_stream() && body.frame().await.is_none());
                    return (data, Status::from_header_map(frame.trailers_ref().unwrap()).unwrap());
                }
            }
        }
    }

    #[tokio::test]
    async fn a_message_is_what_it_was_however_it_is_cut() {
        for (bytes, expect) in [(0, 1), (1, 1), (COPIED_BYTES_MAX, 1), (COPIED_BYTES_MAX + 1, 2), (1 << 20, 2)] {
            let message = v1::ReadResponse {
                file: Some(v1::FileInfo { path: "/f".to_owned(), ..Default::default() }),
                offset: 7,
                data: vec![0xA5; bytes].into(),
                end: Some(v1::ReadEnd { bytes_sent: 300, ..Default::default() }),
                ..Default::default()
            };
            let (data, status) = frames(vec![Ok(message.clone()), Ok(message.clone())]).await;
            assert_eq!((data.len(), status.code()), (2 * expect, Code::Ok), "{bytes}");
            let one = data[..expect].concat();
            assert_eq!(data.concat(), [&one[..], &one[..]].concat());
            let (prefix, encoded) = one.split_at(PREFIX_BYTES);
            assert_eq!((prefix[0], &prefix[1..]), (0, &(encoded.len() as u32).to_be_bytes()[..]));
            assert_eq!(v1::ReadResponse::decode(encoded).unwrap(), message);
            assert_eq!(encoded.len(), message.encoded_len());
        }
    }

    #[tokio::test]
    async fn data_is_not_copied() {
        let data = Bytes::from(vec![1; 1 << 20]);
        let message = v1::ReadResponse { data: data.clone(), ..Default::default() };
        assert_eq!(frames(vec![Ok(message)]).await.0[1].as_ptr(), data.as_ptr());
    }

    #[tokio::test]
    async fn an_error_ends_it_in_trailers() {
        let failed = || Err(Status::aborted("changed"));
        let message = v1::ReadResponse { data: vec![1; 1 << 20].into(), ..Default::default() };
        let (data, status) = frames(vec![Ok(message), failed(), failed()]).await;
        assert_eq!((data.len(), status.code(), status.message()), (2, Code::Aborted, "changed"));
    }
}
