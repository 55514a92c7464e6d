//! Dormouse's host agent: the files of a fleet's workspaces over gRPC, asleep or awake.
//!
//! [`config`] is parsed and refused before anything is bound; [`server::Server`] is the agent in one process; [`rpc`] is
//! the edge, [`host`] knows which workspaces there are and where their files are now. How a file is read or changed is in
//! the packages below: `dormouse-files`, `dormouse-live`, `dormouse-disk`.

mod authority;
pub mod config;
mod connections;
pub mod demo;
pub mod flags;
pub mod guest;
pub mod host;
pub mod listen;
pub mod rpc;
pub mod server;
pub mod telemetry;
mod through;

pub use config::Config;
pub use server::Server;
