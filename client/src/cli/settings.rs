//! Where the hosts are and how they are called: flags, then the environment, then the configuration file, then what is built
//! in.
//!
//! The file is `dormouse/client.toml` in the XDG configuration directory (`$XDG_CONFIG_HOME`, or `~/.config`; XDG Base
//! Directory Specification), or the one that `DORMOUSE_CONFIG` names:
//!
//! ```toml
//! endpoint = "unix:/run/dormouse/files.sock"
//! host_endpoint = "unix:/run/dormouse/host.sock"
//! ca_file = "/etc/dormouse/ca.pem"
//! timeout = "30s"
//! token_file = "/home/me/.config/dormouse/token"
//! ```

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use dormouse_client::{Endpoint, Token, Trust};
use serde::Deserialize;

use super::{Global, duration, fail::Failure};

const FILES_ENDPOINT: &str = "unix:/run/dormouse/files.sock";
const HOST_ENDPOINT: &str = "unix:/run/dormouse/host.sock";
const CONFIG_BYTES_MAX: u64 = 64 * 1024;
const TOKEN_BYTES_MAX: u64 = 16 * 1024;

/// What a command connects with.
#[derive(Debug)]
pub struct Settings {
    pub endpoint: Endpoint,
    pub host_endpoint: Endpoint,
    pub trust: Trust,
    pub timeout: Option<Duration>,
    pub token: Option<Token>,
}

/// The configuration file. An unknown key is refused by name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    endpoint: Option<String>,
    host_endpoint: Option<String>,
    ca_file: Option<PathBuf>,
    timeout: Option<String>,
    token_file: Option<PathBuf>,
}

impl Settings {
    /// Reads the configuration file, if there is one, and the token, if one is named.
    pub fn load(global: &Global) -> Result<Self, Failure> {
        let environment = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let config = match config_path(&environment) {
            Some((path, named)) => config(&path, named)?,
            None => Config::default(),
        };
        let token = match (environment("DORMOUSE_TOKEN"), environment("DORMOUSE_TOKEN_FILE")) {
            (Some(text), _) => Some(text.to_string_lossy().into_owned()),
            (None, Some(path)) => Some(token_text(Path::new(&path))?),
            (None, None) => config.token_file.as_deref().map(token_text).transpose()?,
        };
        let token = token.map(|text| Token::new(&text).ok_or_else(bad_token)).transpose()?;
        Self::merge(global, config, token)
    }

    fn merge(global: &Global, config: Config, token: Option<Token>) -> Result<Self, Failure> {
        let endpoint = |flag: &Option<Endpoint>, text: Option<String>, built_in: &str| match flag {
            Some(endpoint) => Ok(endpoint.clone()),
            None => text
                .as_deref()
                .unwrap_or(built_in)
                .parse()
                .map_err(|error| Failure::Usage(format!("configuration file: {error}"))),
        };
        let timeout = config.timeout.as_deref().map(duration).transpose();
        let timeout = timeout.map_err(|error| Failure::Usage(format!("configuration file: timeout: {error}")))?;
        let trust = match global.ca_file.as_ref().or(config.ca_file.as_ref()) {
            Some(path) => Trust::ca_file(path).map_err(|error| Failure::Usage(error.to_string()))?,
            None => Trust::system(),
        };
        Ok(Self {
            trust,
            endpoint: endpoint(&global.endpoint, config.endpoint, FILES_ENDPOINT)?,
            host_endpoint: endpoint(&global.host_endpoint, config.host_endpoint, HOST_ENDPOINT)?,
            timeout: global.timeout.or(timeout),
            token,
        })
    }
}

/// The file, and whether it was named (and must therefore be there).
fn config_path(environment: &impl Fn(&str) -> Option<OsString>) -> Option<(PathBuf, bool)> {
    if let Some(path) = environment("DORMOUSE_CONFIG") {
        return Some((path.into(), true));
    }
    // The specification: a path that is not absolute is to be ignored.
    let base = environment("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| environment("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some((base.join("dormouse/client.toml"), false))
}

fn config(path: &Path, named: bool) -> Result<Config, Failure> {
    let text = match limited(path, CONFIG_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if !named && error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(error) => return Err(Failure::File(path.display().to_string(), error)),
    };
    toml::from_str(&text).map_err(|error| Failure::Usage(format!("{}: {}", path.display(), error.message())))
}

/// From the environment or a file, never from a flag: other users can read a process's arguments.
fn token_text(path: &Path) -> Result<String, Failure> {
    limited(path, TOKEN_BYTES_MAX).map_err(|error| Failure::File(path.display().to_string(), error))
}

fn limited(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    if File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)? as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {bytes_max} bytes")));
    }
    Ok(text)
}

fn bad_token() -> Failure {
    Failure::Usage("the token is empty or holds characters that a header cannot carry".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        global: Global,
    }

    fn check(words: &[&str], config: &str, expect: Result<(&str, &str, Option<u64>), &str>) {
        let global = Line::try_parse_from(["x"].iter().chain(words)).unwrap().global;
        match (Settings::merge(&global, toml::from_str(config).unwrap(), None), expect) {
            (Ok(settings), Ok((files, host, seconds))) => {
                assert_eq!((&*settings.endpoint.to_string(), &*settings.host_endpoint.to_string()), (files, host));
                assert_eq!(settings.timeout, seconds.map(Duration::from_secs));
            }
            (Err(Failure::Usage(fact)), Err(part)) => assert!(fact.contains(part), "{fact}"),
            (got, expect) => panic!("{got:?}, not {expect:?}"),
        }
    }

    #[test]
    fn flags_come_before_the_file_and_the_file_before_what_is_built_in() {
        check(&[], "", Ok((FILES_ENDPOINT, HOST_ENDPOINT, None)));
        let config = "endpoint = 'unix:/a'\nhost_endpoint = 'tcp:h:1'\ntimeout = '30s'";
        check(&[], config, Ok(("unix:/a", "http://h:1", Some(30))));
        check(&["--endpoint", "unix:/b", "--timeout", "5"], config, Ok(("unix:/b", "http://h:1", Some(5))));
        check(&[], "endpoint = 'b'", Err("configuration file: endpoint \"b\""));
        check(&[], "ca_file = '/no/such/ca'", Err("/no/such/ca"));
        check(&["--ca-file", "/no/flag"], "ca_file = '/no/such/ca'", Err("/no/flag"));
        check(&[], "timeout = 'soon'", Err("configuration file: timeout"));
    }

    #[test]
    fn the_file_is_where_xdg_says() {
        let path = |known: &'static [(&str, &str)]| {
            config_path(&|name: &str| known.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        assert_eq!(path(&[("HOME", "/h")]), Some(("/h/.config/dormouse/client.toml".into(), false)));
        assert_eq!(path(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]), Some(("/x/dormouse/client.toml".into(), false)));
        assert_eq!(
            path(&[("XDG_CONFIG_HOME", "x"), ("HOME", "/h")]),
            Some(("/h/.config/dormouse/client.toml".into(), false))
        );
        assert_eq!(path(&[("DORMOUSE_CONFIG", "/c"), ("HOME", "/h")]), Some(("/c".into(), true)));
        assert_eq!(path(&[]), None);
    }

    #[test]
    fn files_are_read_within_limits_and_mistakes_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("client.toml");
        assert!(config(&path, false).unwrap().endpoint.is_none());
        assert!(matches!(config(&path, true), Err(Failure::File(..))));
        std::fs::write(&path, "endpiont = 'x'").unwrap();
        let Err(Failure::Usage(fact)) = config(&path, false) else { panic!() };
        assert!(fact.contains("endpiont") && fact.contains("client.toml"), "{fact}");
        std::fs::write(&path, " ".repeat(CONFIG_BYTES_MAX as usize + 1)).unwrap();
        assert!(matches!(config(&path, false), Err(Failure::File(..))));
    }
}
