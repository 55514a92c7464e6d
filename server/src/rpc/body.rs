//! The body of an answer on its way out: its bytes are counted, the call's permit is held to its end, the caller's
//! deadline ends it, a panic in it is caught, and an error in its trailers gets its `ErrorInfo` where it lacks one.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use dormouse_files::Fault;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;
use tonic::{Code, Status, body::Body};

use crate::{
    host::admit::Permit,
    rpc::{observe::End, status},
};

/// The body.
pub struct Observed {
    inner: Body,
    deadline: Option<Pin<Box<Sleep>>>,
    _permit: Option<Arc<Permit>>,
    path: String,
    end: Option<End>,
    bytes: u64,
}

impl Observed {
    /// Around this one.
    pub fn new(
        inner: Body,
        deadline: Option<Pin<Box<Sleep>>>,
        permit: Option<Arc<Permit>>,
        path: String,
        end: End,
    ) -> Self {
        Self { inner, deadline, _permit: permit, path, end: Some(end), bytes: 0 }
    }

    fn ended(&mut self, code: Code, message: &str) {
        if let Some(end) = self.end.take() {
            end.ended(code, message, self.bytes);
        }
    }

    /// The last frame, with this status.
    fn close(&mut self, status: Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.ended(status.code(), status.message());
        // What is left of the inner body is dropped, and with it its lane.
        self.inner = Body::empty();
        self.deadline = None;
        let mut trailers = HeaderMap::new();
        match status.add_header(&mut trailers) {
            Ok(()) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Err(status) => Poll::Ready(Some(Err(status))),
        }
    }
}

impl http_body::Body for Observed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.end.is_none() {
            return Poll::Ready(None);
        }
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut this.inner).poll_frame(context)));
        let Ok(polled) = polled else {
            tracing::error!(path = this.path, "an answer panicked");
            return this.close(status::internal("an answer panicked"));
        };
        match polled {
            Poll::Pending => {
                let overdue = this.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(context).is_ready());
                if overdue { this.close(status::of_fault("", &Fault::DeadlineExceeded)) } else { Poll::Pending }
            }
            Poll::Ready(None) => {
                this.ended(Code::Ok, "");
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(status))) => {
                let status = status::normalised(status, &this.path);
                this.close(status)
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    this.bytes += data.remaining() as u64;
                    return Poll::Ready(Some(Ok(frame)));
                }
                let status = frame.trailers_ref().and_then(Status::from_header_map);
                match status {
                    Some(status) if status.code() != Code::Ok => {
                        let status = status::normalised(status, &this.path);
                        this.close(status)
                    }
                    _ => {
                        this.ended(Code::Ok, "");
                        Poll::Ready(Some(Ok(frame)))
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        // A body that is dropped before its end: the caller has gone.
        self.ended(Code::Cancelled, "");
    }
}
