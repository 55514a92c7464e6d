//! The client of Dormouse: the files of workspaces on a host, whether they run or sleep.
//!
//! [`FilesClient`] has the verbs of the contract in their order (stat, read, list, search, patch, write, remove, rename,
//! make directory), [`HostClient`] what a control plane says to a host. Every call follows one set of rules about what is
//! sent again and when ([`retry`]); every mutation carries one idempotency key over all its attempts; every failure is one
//! [`Error`] with a typed [`Kind`].
//!
//! ```no_run
//! use dormouse_client::{Endpoint, FilesClient, proto::files::v1::StatRequest};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint: Endpoint = "unix:/run/dormouse/files.sock".parse()?;
//! let files = FilesClient::new(endpoint.channel());
//! let request = StatRequest {
//!     workspace: "customer-42/main".into(),
//!     path: "/home/user/project/app.py".into(),
//!     include_revision: true,
//!     ..Default::default()
//! };
//! let revision = files.stat(request).await?.file.and_then(|file| file.revision);
//! # let _ = revision; Ok(()) }
//! ```
//!
//! [`tools`] are the same verbs in the shape in which agents call them.
//!
//! This package never touches a workspace's files itself, and keeps nothing between calls but the connection.

mod call;
mod endpoint;
mod error;
mod files;
mod host;
mod method;
pub mod retry;
pub mod tools;
mod trust;
mod wake;
pub mod words;

pub use call::{Options, REQUEST_BYTES_MAX, Token};
pub use dormouse_proto as proto;
pub use endpoint::{Endpoint, EndpointError};
pub use error::{Error, Kind};
pub use files::{
    FilesClient,
    list::ListStream,
    read::{ReadHeader, ReadStream},
    search::SearchStream,
    write::WriteSource,
};
pub use host::{HostClient, HostWaker, WatchStream};
pub use method::{Effect, Method};
pub use tonic::Code;
pub use trust::{TlsFault, Trust, TrustError};
pub use wake::{WakeError, Waker, Waking};
