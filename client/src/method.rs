//! The methods of the contract as a client sees them: their names, what a repetition of each may do, and which feature
//! a host lacks that does not know one.
//!
//! `idempotency_level` in the compiled contract is the one source of what may be sent again; nothing here repeats it.

use std::{collections::HashMap, fmt, sync::LazyLock};

use dormouse_proto::{FILE_DESCRIPTOR_SET, files::v1::Feature};
use prost::Message;
use prost_types::{FileDescriptorSet, method_options::IdempotencyLevel};

/// What sending a call of a method a second time may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The method changes nothing (`NO_SIDE_EFFECTS`).
    Safe,
    /// The method changes something, once however often the same request arrives (`IDEMPOTENT`).
    Idempotent,
    /// The contract promises nothing; such a call is never sent again.
    Unknown,
}

/// A method of the contract, by its gRPC path without the leading slash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Method(&'static str);

impl Method {
    /// `FilesService.GetCapabilities`
    pub const GET_CAPABILITIES: Self = Self("dormouse.files.v1.FilesService/GetCapabilities");
    /// `FilesService.Stat`
    pub const STAT: Self = Self("dormouse.files.v1.FilesService/Stat");
    /// `FilesService.Read`
    pub const READ: Self = Self("dormouse.files.v1.FilesService/Read");
    /// `FilesService.List`
    pub const LIST: Self = Self("dormouse.files.v1.FilesService/List");
    /// `FilesService.Search`
    pub const SEARCH: Self = Self("dormouse.files.v1.FilesService/Search");
    /// `FilesService.Patch`
    pub const PATCH: Self = Self("dormouse.files.v1.FilesService/Patch");
    /// `FilesService.Write`
    pub const WRITE: Self = Self("dormouse.files.v1.FilesService/Write");
    /// `FilesService.Remove`
    pub const REMOVE: Self = Self("dormouse.files.v1.FilesService/Remove");
    /// `FilesService.Move`
    pub const MOVE: Self = Self("dormouse.files.v1.FilesService/Move");
    /// `FilesService.MakeDirectory`
    pub const MAKE_DIRECTORY: Self = Self("dormouse.files.v1.FilesService/MakeDirectory");
    /// `HostService.GetHost`
    pub const GET_HOST: Self = Self("dormouse.host.v1.HostService/GetHost");
    /// `HostService.RegisterWorkspace`
    pub const REGISTER_WORKSPACE: Self = Self("dormouse.host.v1.HostService/RegisterWorkspace");
    /// `HostService.ReleaseWorkspace`
    pub const RELEASE_WORKSPACE: Self = Self("dormouse.host.v1.HostService/ReleaseWorkspace");
    /// `HostService.GetWorkspace`
    pub const GET_WORKSPACE: Self = Self("dormouse.host.v1.HostService/GetWorkspace");
    /// `HostService.ListWorkspaces`
    pub const LIST_WORKSPACES: Self = Self("dormouse.host.v1.HostService/ListWorkspaces");
    /// `HostService.WatchWorkspaces`
    pub const WATCH_WORKSPACES: Self = Self("dormouse.host.v1.HostService/WatchWorkspaces");
    /// `HostService.QuiesceWorkspace`
    pub const QUIESCE_WORKSPACE: Self = Self("dormouse.host.v1.HostService/QuiesceWorkspace");
    /// `HostService.SealWorkspace`
    pub const SEAL_WORKSPACE: Self = Self("dormouse.host.v1.HostService/SealWorkspace");
    /// `HostService.UnsealWorkspace`
    pub const UNSEAL_WORKSPACE: Self = Self("dormouse.host.v1.HostService/UnsealWorkspace");
    /// `HostService.OpenWorkspace`
    pub const OPEN_WORKSPACE: Self = Self("dormouse.host.v1.HostService/OpenWorkspace");
    /// `HostService.SuspendWorkspace`
    pub const SUSPEND_WORKSPACE: Self = Self("dormouse.host.v1.HostService/SuspendWorkspace");
    /// `HostService.ResumeWorkspace`
    pub const RESUME_WORKSPACE: Self = Self("dormouse.host.v1.HostService/ResumeWorkspace");
    /// `HostService.DrainHost`
    pub const DRAIN_HOST: Self = Self("dormouse.host.v1.HostService/DrainHost");
    /// `HostService.UndrainHost`
    pub const UNDRAIN_HOST: Self = Self("dormouse.host.v1.HostService/UndrainHost");

    /// The gRPC path without the leading slash, such as `dormouse.files.v1.FilesService/Stat`.
    pub fn path(self) -> &'static str {
        self.0
    }

    /// The method's own name, such as `Stat`.
    pub fn name(self) -> &'static str {
        self.0.rsplit_once('/').map_or(self.0, |(_, name)| name)
    }

    /// What the contract promises about a repetition.
    pub fn effect(self) -> Effect {
        EFFECTS.get(self.0).copied().unwrap_or(Effect::Unknown)
    }

    /// The feature that a host lacks which does not know this method. The contract names one for what is optional;
    /// for a method that every host should know it is the method's name in the same style, such as `file_stat`.
    pub fn feature(self) -> String {
        match self {
            Self::SEARCH => Feature::FileSearch.wire_name(),
            Self::PATCH => Feature::FilePatch.wire_name(),
            Self::WRITE | Self::REMOVE | Self::MOVE | Self::MAKE_DIRECTORY => Feature::FileWrite.wire_name(),
            Self::STAT | Self::READ | Self::LIST => format!("file_{}", snake_case(self.name())),
            _ => snake_case(self.name()),
        }
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

static EFFECTS: LazyLock<HashMap<String, Effect>> = LazyLock::new(|| {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("the build wrote the set that is decoded here");
    let mut effects = HashMap::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                let level =
                    method.options.as_ref().map_or(IdempotencyLevel::IdempotencyUnknown, |o| o.idempotency_level());
                let effect = match level {
                    IdempotencyLevel::NoSideEffects => Effect::Safe,
                    IdempotencyLevel::Idempotent => Effect::Idempotent,
                    IdempotencyLevel::IdempotencyUnknown => Effect::Unknown,
                };
                effects.insert(format!("{}.{}/{}", file.package(), service.name(), method.name()), effect);
            }
        }
    }
    effects
});

fn snake_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for (place, letter) in name.chars().enumerate() {
        if letter.is_ascii_uppercase() && place > 0 {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: Method, effect: Effect, feature: &str) {
        assert_eq!(method.effect(), effect, "{method:?}");
        assert_eq!(method.feature(), feature, "{method:?}");
    }

    #[test]
    fn each_method_has_the_contract_s_effect() {
        check(Method::GET_CAPABILITIES, Effect::Safe, "get_capabilities");
        check(Method::STAT, Effect::Safe, "file_stat");
        check(Method::READ, Effect::Safe, "file_read");
        check(Method::LIST, Effect::Safe, "file_list");
        check(Method::SEARCH, Effect::Safe, "file_search");
        check(Method::PATCH, Effect::Idempotent, "file_patch");
        check(Method::WRITE, Effect::Idempotent, "file_write");
        check(Method::REMOVE, Effect::Idempotent, "file_write");
        check(Method::MOVE, Effect::Idempotent, "file_write");
        check(Method::MAKE_DIRECTORY, Effect::Idempotent, "file_write");
        check(Method::GET_HOST, Effect::Safe, "get_host");
        check(Method::REGISTER_WORKSPACE, Effect::Idempotent, "register_workspace");
        check(Method::RELEASE_WORKSPACE, Effect::Idempotent, "release_workspace");
        check(Method::GET_WORKSPACE, Effect::Safe, "get_workspace");
        check(Method::LIST_WORKSPACES, Effect::Safe, "list_workspaces");
        check(Method::WATCH_WORKSPACES, Effect::Safe, "watch_workspaces");
        check(Method::QUIESCE_WORKSPACE, Effect::Idempotent, "quiesce_workspace");
        check(Method::SEAL_WORKSPACE, Effect::Idempotent, "seal_workspace");
        check(Method::UNSEAL_WORKSPACE, Effect::Idempotent, "unseal_workspace");
        check(Method::OPEN_WORKSPACE, Effect::Idempotent, "open_workspace");
        check(Method::SUSPEND_WORKSPACE, Effect::Idempotent, "suspend_workspace");
        check(Method::RESUME_WORKSPACE, Effect::Idempotent, "resume_workspace");
        check(Method::DRAIN_HOST, Effect::Idempotent, "drain_host");
        check(Method::UNDRAIN_HOST, Effect::Idempotent, "undrain_host");
    }

    #[test]
    fn every_method_of_the_contract_says_what_a_repetition_does() {
        let silent: Vec<_> = EFFECTS.iter().filter(|(_, effect)| **effect == Effect::Unknown).collect();
        assert!(silent.is_empty(), "{silent:?}");
        assert!(EFFECTS.len() >= 24);
    }

    /// `service_config.json` is for clients that are generated in other languages: the same table in gRPC's own words.
    #[test]
    fn the_shipped_service_config_says_what_the_contract_says() {
        let config: serde_json::Value = serde_json::from_str(include_str!("../service_config.json")).unwrap();
        let policy = crate::retry::Policy::default();
        let shipped = &config["methodConfig"][0]["retryPolicy"];
        assert_eq!(shipped["maxAttempts"], policy.attempts_max);
        assert_eq!(shipped["initialBackoff"], format!("{}s", policy.backoff.as_secs_f64()));
        assert_eq!(shipped["maxBackoff"], format!("{}s", policy.backoff_max.as_secs_f64()));
        assert_eq!(shipped["retryableStatusCodes"], serde_json::json!(["UNAVAILABLE"]));
        // A name without a method covers the whole service: allowed as long as all its methods may be sent again.
        let names = config["methodConfig"][0]["name"].as_array().unwrap();
        let mut listed: Vec<&str> = names.iter().map(|name| name["service"].as_str().unwrap()).collect();
        assert!(names.iter().all(|name| name.get("method").is_none()));
        assert!(EFFECTS.values().all(|effect| *effect != Effect::Unknown));
        // The agent inside a machine is called by its host alone.
        let services = EFFECTS.keys().filter_map(|path| path.split_once('/')).map(|(service, _)| service);
        let mut public: Vec<&str> = services.filter(|service| !service.starts_with("dormouse.guest.")).collect();
        listed.sort();
        public.sort();
        public.dedup();
        assert_eq!(listed, public);
    }

    #[test]
    fn a_method_outside_the_contract_is_never_sent_again() {
        assert_eq!(Method("dormouse.files.v1.FilesService/Format").effect(), Effect::Unknown);
    }
}
