//! The commands, and what all of them share: the connection, the way of printing, and the way of ending.
//!
//! Standard output carries data only; notes and errors go to standard error. The exit codes are in [`fail`].

mod completions;
mod context;
mod fail;
mod files;
mod host;
mod input;
mod json;
mod man;
mod mcp;
mod out;
mod progress;
mod settings;
mod target;
mod text;
mod wake;
mod workspaces;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use dormouse_client::Endpoint;
use tokio::signal::unix::{SignalKind, signal};

use self::{
    context::Context,
    fail::{Exit, Failure},
    settings::Settings,
};

/// How long an interrupted command may take to clean up.
const CLEAN_UP: Duration = Duration::from_secs(2);

/// Files of workspaces, whether they run or sleep.
#[derive(Debug, Parser)]
#[command(
    name = "dormouse",
    version,
    propagate_version = true,
    after_help = "Examples:\n  \
        dormouse files search customer-42/main /home/user/project TODO --include '*.py'\n  \
        dormouse files read customer-42/main:/home/user/project/app.py\n\n\
        Exit codes:\n  \
        0    done\n  \
        1    a search found nothing, a diff found a difference\n  \
        2    wrong usage\n  \
        3    not found\n  \
        4    revision or match conflict\n  \
        5    refused by policy or limit\n  \
        6    not running, or unavailable after retries\n  \
        7    the host lacks the feature\n  \
        8    anything else\n  \
        130  interrupted; 143 terminated"
)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command understands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Where FilesService listens: unix:PATH, https://HOST, http://HOST:PORT or tcp:HOST:PORT [default: unix:/run/dormouse/files.sock]
    #[arg(long, global = true, env = "DORMOUSE_ENDPOINT")]
    endpoint: Option<Endpoint>,
    /// Where HostService listens [default: unix:/run/dormouse/host.sock]
    #[arg(long, global = true, env = "DORMOUSE_HOST_ENDPOINT")]
    host_endpoint: Option<Endpoint>,
    /// Whose certificates https:// believes, in PEM [default: the authorities that this system trusts]
    #[arg(long, global = true, value_name = "FILE", env = "DORMOUSE_CA_FILE")]
    ca_file: Option<PathBuf>,
    /// Print one JSON object; errors are JSON on standard error
    #[arg(long, global = true, conflicts_with = "jsonl")]
    json: bool,
    /// Print a JSON object a line as results come, where there are many
    #[arg(long, global = true)]
    jsonl: bool,
    /// For the whole call, retries included, such as 30s or 2m [default: none]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// The workspace's generation, where you know it: an older host then refuses
    #[arg(long, global = true, value_name = "N")]
    generation: Option<i64>,
    /// Wake a workspace that must run for the call: ask the host to resume it
    #[arg(long, global = true, value_name = "HOW", conflicts_with = "wake_command")]
    wake: Option<Wake>,
    /// Wake it by a command, run by sh with DORMOUSE_WORKSPACE set
    #[arg(long, global = true, value_name = "COMMAND")]
    wake_command: Option<OsString>,
    /// No notes on standard error
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Colours in what is printed; NO_COLOR turns off "auto"
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: When,
}

/// Who wakes a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wake {
    /// The host, by HostService.ResumeWorkspace
    Host,
}

/// When colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Search, read and change files
    #[command(subcommand)]
    Files(files::Command),
    /// The workspaces of a host
    #[command(subcommand)]
    Workspaces(workspaces::Command),
    /// The host itself
    Host(host::Args),
    /// Serve a workspace's tools to an agent, over the Model Context Protocol
    Mcp(mcp::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Print or write the manual pages
    Man(man::Args),
}

/// Runs the command of this process's arguments.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let wants_json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json" || word == "--jsonl");
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && wants_json => {
            let message = error.render().to_string();
            let fact = message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            return Failure::Usage(fact).report(true, "");
        }
        Err(error) => {
            // Writing help to a closed pipe is no failure of ours.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::Output(error).report(wants_json, ""),
    };
    let (code, endpoint) = match cli.command.settings(&cli.global) {
        Err(failure) => (Err(failure), String::new()),
        Ok(settings) => {
            let endpoint = settings.as_ref().map(|settings| cli.command.endpoint(settings)).unwrap_or_default();
            (runtime.block_on(until_interrupted(cli, settings)), endpoint)
        }
    };
    let code = match code {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(wants_json, &endpoint),
    };
    // A thread that waits for standard input cannot be joined.
    runtime.shutdown_background();
    code
}

/// The command runs in a task of its own, so that an interrupt is seen even while it waits for a full pipe.
async fn until_interrupted(cli: Cli, settings: Option<Settings>) -> Result<Exit, Failure> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut task = tokio::spawn(run(cli, settings));
    let exit = tokio::select! {
        done = &mut task => return done.unwrap_or_else(|failed| Err(Failure::Panic(failed.to_string()))),
        _ = interrupt.recv() => Exit::Interrupted,
        _ = terminate.recv() => Exit::Terminated,
    };
    task.abort();
    // Dropping the command removes its temporary file; a task that is stuck in a write is left behind.
    match tokio::time::timeout(CLEAN_UP, task).await {
        Ok(_) | Err(_) => Ok(exit),
    }
}

async fn run(cli: Cli, settings: Option<Settings>) -> Result<Exit, Failure> {
    let context = settings.map(|settings| Context::new(cli.global, settings));
    match (cli.command, context) {
        (Command::Completions(args), _) => completions::run(&args, &mut Cli::command()),
        (Command::Man(args), _) => man::run(&args, Cli::command()),
        (Command::Files(command), Some(context)) => files::run(command, context).await,
        (Command::Workspaces(command), Some(context)) => workspaces::run(command, context).await,
        (Command::Host(args), Some(context)) => host::run(args, context).await,
        (Command::Mcp(args), Some(context)) => mcp::run(args, context).await,
        (_, None) => Err(Failure::Panic("a command without its settings".into())),
    }
}

impl Command {
    /// Nothing for a command that calls no host, so that it works beside a broken configuration file.
    fn settings(&self, global: &Global) -> Result<Option<Settings>, Failure> {
        match self {
            Self::Completions(_) | Self::Man(_) => Ok(None),
            Self::Files(_) | Self::Workspaces(_) | Self::Host(_) | Self::Mcp(_) => Settings::load(global).map(Some),
        }
    }

    /// The endpoint that a failure to connect is about.
    fn endpoint(&self, settings: &Settings) -> String {
        match self {
            Self::Workspaces(_) | Self::Host(_) => settings.host_endpoint.to_string(),
            _ => settings.endpoint.to_string(),
        }
    }
}

/// A duration with its unit, or a number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string())?,
    };
    if parsed.is_zero() { Err("a timeout of 0 leaves no time to answer".to_owned()) } else { Ok(parsed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_read_with_or_without_a_unit() {
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert!(duration("0").is_err());
        assert!(duration("soon").is_err());
        assert!(duration("-1s").is_err());
    }

    #[test]
    fn every_command_s_help_shows_an_example() {
        fn visit(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            if command.get_subcommands().next().is_none() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example") && help.contains("dormouse "), "{path}: {help}");
            }
            command.get_subcommands().for_each(|inner| visit(inner, &path));
        }
        visit(&Cli::command(), "");
    }
}
