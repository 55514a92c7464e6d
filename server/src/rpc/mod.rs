//! The edge: decode → resolve → run → encode, one file for each verb. Nothing here knows how a file is read or changed,
//! and nothing below here knows the wire.

pub mod body;
pub mod buffers;
pub mod files;
pub mod guest;
pub mod host;
pub mod lane;
pub mod observe;
pub mod relay;
pub mod status;
pub mod wire;
