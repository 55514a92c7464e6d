//! `dormouse mcp`: the agents' tools of one workspace, served over the Model Context Protocol.
//!
//! Over standard input and output, standard output carries the protocol and nothing else; over HTTP it stays empty. Notes go to
//! standard error.

mod http;
mod server;

use std::{net::SocketAddr, sync::Arc};

use dormouse_client::tools::{self, Permissions, Session};
use rmcp::{
    ServiceExt,
    transport::{async_rw::AsyncRwTransport, io::stdio_pipes},
};

use self::server::{Server, Shared};
use super::{
    context::Context,
    fail::{Exit, Failure},
};

/// Serve a workspace's tools to an agent, over the Model Context Protocol
///
/// search_files, edit_file, read_file, list_files and stat_file, on standard input and output, or over HTTP.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    dormouse mcp --workspace customer-42/main\n  \
    dormouse mcp --workspace customer-42/main --permissions files=read --wake host\n  \
    dormouse mcp --workspace customer-42/main --http 127.0.0.1:8765\n\n\
    Over HTTP the address is http://HOST:PORT/mcp. Where DORMOUSE_MCP_TOKEN is set, each request needs it as a bearer token; an\n\
    address other than a loopback one needs it, and --allow-host.")]
pub struct Args {
    /// The workspace that the tools are for
    #[arg(long, value_name = "NAME")]
    workspace: String,
    /// What the agent may use: files=write, files=read or none
    #[arg(long, value_name = "WHAT", default_value = "files=write")]
    permissions: Permissions,
    /// Serve streamable HTTP at this address instead of standard input and output; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// A host name that requests over HTTP may be addressed to, beside those of loopback; may be given again
    #[arg(long, value_name = "HOST", requires = "http")]
    allow_host: Vec<String>,
    /// An origin whose web pages may send requests over HTTP, such as http://localhost:6274 [default: none]
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    allow_origin: Vec<String>,
    /// The largest answer of a tool
    #[arg(long, value_name = "BYTES", default_value_t = tools::OUTPUT_BYTES, value_parser = output_bytes)]
    output_bytes: usize,
    /// What an agent is told to do on a host that lacks a feature, such as file_search='call run_command with grep'
    #[arg(long, value_name = "FEATURE=TEXT", value_parser = alternative)]
    alternative: Vec<(String, String)>,
}

pub async fn run(args: Args, context: Context) -> Result<Exit, Failure> {
    let mut session = Session::new(args.workspace).with_output_bytes(args.output_bytes);
    for (feature, way) in args.alternative {
        session = session.with_alternative(feature, way);
    }
    let shared = Arc::new(Shared::new(session, args.permissions, context.files.clone(), context.waker.clone()));
    match args.http {
        Some(address) => {
            let guards = http::Guards::new(args.allow_host, args.allow_origin);
            http::serve(address, guards, shared, &context).await
        }
        None => over_standard_streams(shared).await,
    }
}

/// Until standard input ends.
async fn over_standard_streams(shared: Arc<Shared>) -> Result<Exit, Failure> {
    let (input, output) = stdio_pipes();
    // A message's length is bounded by the transport itself.
    let transport = AsyncRwTransport::new(input, output);
    let running = match Server::new(shared).serve(transport).await {
        Ok(running) => running,
        // The agent left, or spoke no MCP, before it began.
        Err(error) => return Err(Failure::Usage(format!("standard input: no MCP session: {error}"))),
    };
    match running.waiting().await {
        Ok(_) => Ok(Exit::Done),
        Err(error) => Err(Failure::Panic(error.to_string())),
    }
}

fn output_bytes(text: &str) -> Result<usize, String> {
    let least = tools::OUTPUT_BYTES_MIN;
    text.parse().ok().filter(|bytes| *bytes >= least).ok_or_else(|| format!("expected a number of at least {least}"))
}

fn alternative(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((feature, way)) if !feature.is_empty() && !way.is_empty() => Ok((feature.to_owned(), way.to_owned())),
        _ => Err("expected FEATURE=TEXT".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_alternatives_are_read() {
        assert_eq!(output_bytes("1024"), Ok(1024));
        assert!(output_bytes("1023").is_err());
        assert!(output_bytes("many").is_err());
        assert_eq!(alternative("file_search=a=b"), Ok(("file_search".into(), "a=b".into())));
        assert!(alternative("file_search").is_err());
        assert!(alternative("=x").is_err());
    }
}
