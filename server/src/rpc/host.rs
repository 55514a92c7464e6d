//! HostService: what a control plane says to this host. Transitions run to their end whether or not their caller waits;
//! what they mean is in [`crate::host::transition`].

use std::{pin::Pin, time::Duration};

use dormouse_files::revision::Revision;
use dormouse_proto::host::v1::{self, host_service_server::HostService};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    host::{
        Host, OPEN_TIMEOUT, QUIESCE_TIMEOUT,
        error::HostFault,
        spec::check_name,
        state::{Rest, State, Transition},
        transition::{Asked, Proof},
        watch::Change,
        workspace::View,
    },
    rpc::{lane, observe::Call, status, wire},
    server::set_files_health,
};

/// Longest time that a caller may give to a Quiesce or a drain.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Longest time that an Open looks for the guest, whatever its caller's deadline.
const OPEN_TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// Left of the caller's deadline for the answer of an Open: a quarter of it, within these bounds.
const OPEN_ANSWER_TIME: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(3);
/// Workspaces on one page.
const PAGE_SIZE_DEFAULT: usize = 1_000;
/// Messages that wait for a watcher.
const WATCH_COUNT_MAX: usize = 16;

/// The service.
#[derive(Clone)]
pub struct Control {
    host: Host,
    health: HealthReporter,
    /// Says when the agent is on its way down, so that watchers leave.
    closing: tokio::sync::watch::Receiver<bool>,
}

impl Control {
    /// Of this host, until `closing` turns true.
    pub fn new(host: Host, health: HealthReporter, closing: tokio::sync::watch::Receiver<bool>) -> Self {
        Self { host, health, closing }
    }

    async fn run<M, T: Send + 'static>(
        &self,
        request: &Request<M>,
        work: impl FnOnce(&Host) -> Result<T, HostFault> + Send + 'static,
    ) -> Result<T, Status> {
        let host = self.host.clone();
        let permit = request.extensions().get::<Call>().and_then(|call| call.permit.clone());
        let done = lane::finish(move || {
            let _permit = permit;
            Ok(work(&host)?)
        });
        done.await.map_err(|failure| status::of("", &failure))
    }

    /// When the time of a Quiesce passes and no other transition has come, the workspace is running again.
    fn thaw_at(&self, until: tokio::time::Instant, name: &str, generation: i64) {
        let host = self.host.clone();
        let mut closing = self.closing.clone();
        let name = name.to_owned();
        // Ends with its time, at most a minute, or with the agent.
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = closed(&mut closing) => return,
            }
            if let Err(failure) = lane::finish(move || Ok(host.thaw(&name, generation)?)).await {
                tracing::error!(error = %failure, "a workspace could not be set running after its quiesce");
            }
        });
    }

    async fn transition<M: Message>(
        &self,
        request: &Request<M>,
        name: &str,
        asked: Asked,
    ) -> Result<Option<v1::Workspace>, Status> {
        refuse(named(name))?;
        let name = name.to_owned();
        let view = self.run(request, move |host| host.transition(&name, &asked)).await?;
        Ok(Some(wire::workspace(&view)))
    }
}

fn refuse<T>(found: Result<T, HostFault>) -> Result<T, Status> {
    found.map_err(|fault| status::of_host(&fault))
}

fn named(name: &str) -> Result<(), HostFault> {
    check_name(name).map_err(|what| HostFault::invalid("name", what))
}

/// A transition without arguments of its own; `rest` is the request with name and generation taken out.
fn asked(transition: Transition, generation: i64, rest: &impl Message) -> Asked {
    Asked {
        transition,
        generation,
        arguments: Revision::of(&rest.encode_to_vec()).to_string(),
        timeout: QUIESCE_TIMEOUT,
        open_timeout: OPEN_TIMEOUT,
        proof: Proof::AsFound,
        guest: None,
    }
}

fn rest(parked: bool) -> Rest {
    if parked { Rest::Parked } else { Rest::Suspended }
}

/// How long an Open may look for the guest: to a little before the caller's deadline, so that it hears how it went.
fn open_timeout<T>(request: &Request<T>) -> Duration {
    let deadline = request.extensions().get::<Call>().and_then(|call| call.deadline);
    match deadline {
        Some(deadline) => {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let answer = (left / 4).clamp(*OPEN_ANSWER_TIME.start(), *OPEN_ANSWER_TIME.end());
            left.saturating_sub(answer).min(OPEN_TIMEOUT_MAX)
        }
        None => OPEN_TIMEOUT,
    }
}

fn timeout(field: &str, value: Option<prost_types::Duration>) -> Result<Duration, HostFault> {
    match value {
        None => Ok(QUIESCE_TIMEOUT),
        // A negative one is not converted: its opposite is taken there, and the least of all numbers has none.
        Some(value) => match (value.seconds >= 0).then(|| Duration::try_from(value)) {
            Some(Ok(timeout)) if timeout <= TIMEOUT_MAX => Ok(timeout),
            _ => Err(HostFault::invalid(field, format!("give a time from 0 to {} s", TIMEOUT_MAX.as_secs()))),
        },
    }
}

#[tonic::async_trait]
impl HostService for Control {
    type WatchWorkspacesStream = Pin<Box<dyn Stream<Item = Result<v1::WatchWorkspacesResponse, Status>> + Send>>;

    async fn get_host(&self, _: Request<v1::GetHostRequest>) -> Result<Response<v1::GetHostResponse>, Status> {
        // proc_sys_kernel(5); empty where /proc is not there.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        Ok(Response::new(v1::GetHostResponse {
            host,
            server_version: concat!("dormouse ", env!("CARGO_PKG_VERSION")).to_owned(),
            draining: self.host.admission().is_draining(),
            workspace_count: i64::try_from(self.host.count()).unwrap_or(i64::MAX),
            start_time: Some(wire::moment(self.host.start_time())),
        }))
    }

    async fn register_workspace(
        &self,
        request: Request<v1::RegisterWorkspaceRequest>,
    ) -> Result<Response<v1::RegisterWorkspaceResponse>, Status> {
        let message = request.get_ref().clone();
        refuse(named(&message.name))?;
        let spec = refuse(wire::spec(message.spec))?;
        let state = match v1::WorkspaceState::try_from(message.state) {
            Ok(v1::WorkspaceState::Unspecified | v1::WorkspaceState::Running) => State::Running,
            Ok(v1::WorkspaceState::Suspended) => State::Suspended,
            _ => {
                let what = "a workspace is registered as running or as suspended";
                return Err(status::of_host(&HostFault::invalid("state", what)));
            }
        };
        let view =
            self.run(&request, move |host| host.register(&message.name, &spec, message.generation, state)).await?;
        Ok(Response::new(v1::RegisterWorkspaceResponse { workspace: Some(wire::workspace(&view)) }))
    }

    async fn release_workspace(
        &self,
        request: Request<v1::ReleaseWorkspaceRequest>,
    ) -> Result<Response<v1::ReleaseWorkspaceResponse>, Status> {
        let message = request.get_ref().clone();
        refuse(named(&message.name))?;
        self.run(&request, move |host| host.release(&message.name, message.generation)).await?;
        Ok(Response::new(v1::ReleaseWorkspaceResponse {}))
    }

    async fn get_workspace(
        &self,
        request: Request<v1::GetWorkspaceRequest>,
    ) -> Result<Response<v1::GetWorkspaceResponse>, Status> {
        let name = &request.get_ref().name;
        refuse(named(name))?;
        let workspace = refuse(self.host.find(name))?;
        Ok(Response::new(v1::GetWorkspaceResponse { workspace: Some(wire::workspace(&workspace.view())) }))
    }

    async fn list_workspaces(
        &self,
        request: Request<v1::ListWorkspacesRequest>,
    ) -> Result<Response<v1::ListWorkspacesResponse>, Status> {
        let message = request.into_inner();
        let page_size = match message.page_size {
            0 => PAGE_SIZE_DEFAULT,
            size => usize::try_from(size)
                .map_err(|_| status::of_host(&HostFault::invalid("page_size", "it is negative; 0 means 1,000")))?
                .min(PAGE_SIZE_DEFAULT),
        };
        if !message.page_token.is_empty() {
            refuse(check_name(&message.page_token).map_err(|_| {
                HostFault::invalid("page_token", "it is no token that this host gave; begin again without one")
            }))?;
        }
        let states =
            message.states.iter().map(|state| wire::state_from(*state)).collect::<Result<Vec<State>, HostFault>>();
        let states = refuse(states)?;
        let mut wanted =
            self.host.after(&message.page_token).filter(|view| states.is_empty() || states.contains(&view.state));
        let page: Vec<View> = wanted.by_ref().take(page_size).collect();
        let next_page_token = match (wanted.next(), page.last()) {
            (Some(_), Some(last)) => last.name.clone(),
            _ => String::new(),
        };
        let workspaces = page.iter().map(wire::workspace).collect();
        Ok(Response::new(v1::ListWorkspacesResponse { workspaces, next_page_token }))
    }

    async fn watch_workspaces(
        &self,
        _: Request<v1::WatchWorkspacesRequest>,
    ) -> Result<Response<Self::WatchWorkspacesStream>, Status> {
        let watcher = refuse(self.host.watchers().watch())?;
        let (sender, receiver) = mpsc::channel(WATCH_COUNT_MAX);
        let host = self.host.clone();
        let mut closing = self.closing.clone();
        // Ends when the watcher leaves, which closes the channel, or when the agent does.
        tokio::spawn(async move {
            let said = async {
                for workspace in host.all() {
                    let now = v1::WatchWorkspacesResponse {
                        workspace: Some(wire::workspace(&workspace.view())),
                        ..Default::default()
                    };
                    sender.send(Ok(now)).await?;
                }
                sender.send(Ok(v1::WatchWorkspacesResponse { synced: true, ..Default::default() })).await?;
                loop {
                    let change = tokio::select! {
                        change = watcher.next() => change,
                        () = sender.closed() => return Ok(()),
                    };
                    sender.send(Ok(told(&change))).await?;
                }
            };
            let ended: Result<(), mpsc::error::SendError<_>> = tokio::select! {
                ended = said => ended,
                () = closed(&mut closing) => sender.send(Err(status::of_host(&HostFault::Draining))).await,
            };
            // An error means that the watcher has gone, and so there is nobody to tell.
            drop(ended);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn quiesce_workspace(
        &self,
        request: Request<v1::QuiesceWorkspaceRequest>,
    ) -> Result<Response<v1::QuiesceWorkspaceResponse>, Status> {
        let message = request.get_ref().clone();
        let timeout = refuse(timeout("timeout", message.timeout))?;
        let rest = v1::QuiesceWorkspaceRequest { timeout: message.timeout, ..Default::default() };
        let asked = Asked { timeout, ..asked(Transition::Quiesce, message.generation, &rest) };
        let began = tokio::time::Instant::now();
        let workspace = self.transition(&request, &message.name, asked).await?;
        self.thaw_at(began + timeout, &message.name, workspace.as_ref().map_or(0, |workspace| workspace.generation));
        Ok(Response::new(v1::QuiesceWorkspaceResponse { workspace }))
    }

    async fn seal_workspace(
        &self,
        request: Request<v1::SealWorkspaceRequest>,
    ) -> Result<Response<v1::SealWorkspaceResponse>, Status> {
        let message = request.get_ref().clone();
        let proof = if message.require_exact { Proof::Demanded } else { Proof::AsFound };
        let arguments = v1::SealWorkspaceRequest { name: String::new(), generation: 0, ..message };
        let asked = Asked { proof, ..asked(Transition::Seal(rest(message.parked)), message.generation, &arguments) };
        let workspace = self.transition(&request, &message.name, asked).await?;
        Ok(Response::new(v1::SealWorkspaceResponse { workspace }))
    }

    async fn unseal_workspace(
        &self,
        request: Request<v1::UnsealWorkspaceRequest>,
    ) -> Result<Response<v1::UnsealWorkspaceResponse>, Status> {
        let message = request.get_ref().clone();
        let asked = asked(Transition::Unseal, message.generation, &v1::UnsealWorkspaceRequest::default());
        let workspace = self.transition(&request, &message.name, asked).await?;
        Ok(Response::new(v1::UnsealWorkspaceResponse { workspace }))
    }

    async fn open_workspace(
        &self,
        request: Request<v1::OpenWorkspaceRequest>,
    ) -> Result<Response<v1::OpenWorkspaceResponse>, Status> {
        let message = request.get_ref().clone();
        let rest = v1::OpenWorkspaceRequest { guest: message.guest.clone(), ..Default::default() };
        let guest = refuse(message.guest.map(|guest| wire::guest(guest, "guest")).transpose())?;
        let open_timeout = open_timeout(&request);
        let asked = Asked { guest, open_timeout, ..asked(Transition::Open, message.generation, &rest) };
        let workspace = self.transition(&request, &message.name, asked).await?;
        Ok(Response::new(v1::OpenWorkspaceResponse { workspace }))
    }

    async fn suspend_workspace(
        &self,
        request: Request<v1::SuspendWorkspaceRequest>,
    ) -> Result<Response<v1::SuspendWorkspaceResponse>, Status> {
        let message = request.get_ref().clone();
        let arguments = v1::SuspendWorkspaceRequest { parked: message.parked, ..Default::default() };
        let asked = asked(Transition::Suspend(rest(message.parked)), message.generation, &arguments);
        let workspace = self.transition(&request, &message.name, asked).await?;
        Ok(Response::new(v1::SuspendWorkspaceResponse { workspace }))
    }

    async fn resume_workspace(
        &self,
        request: Request<v1::ResumeWorkspaceRequest>,
    ) -> Result<Response<v1::ResumeWorkspaceResponse>, Status> {
        let message = request.get_ref().clone();
        let open_timeout = open_timeout(&request);
        let rest = v1::ResumeWorkspaceRequest::default();
        let asked = Asked { open_timeout, ..asked(Transition::Resume, message.generation, &rest) };
        let workspace = self.transition(&request, &message.name, asked).await?;
        Ok(Response::new(v1::ResumeWorkspaceResponse { workspace }))
    }

    async fn drain_host(
        &self,
        request: Request<v1::DrainHostRequest>,
    ) -> Result<Response<v1::DrainHostResponse>, Status> {
        let timeout = refuse(timeout("timeout", request.into_inner().timeout))?;
        let admission = self.host.admission();
        set_files_health(&self.health, ServingStatus::NotServing).await;
        admission.drain();
        // Over time is an answer too: it says how many calls are left.
        let _ = tokio::time::timeout(timeout, admission.idle()).await;
        let calls_left = i64::try_from(admission.calls()).unwrap_or(i64::MAX);
        Ok(Response::new(v1::DrainHostResponse { calls_left }))
    }

    async fn undrain_host(
        &self,
        _: Request<v1::UndrainHostRequest>,
    ) -> Result<Response<v1::UndrainHostResponse>, Status> {
        if *self.closing.borrow() {
            return Err(status::of_host(&HostFault::Draining));
        }
        self.host.admission().undrain();
        set_files_health(&self.health, ServingStatus::Serving).await;
        Ok(Response::new(v1::UndrainHostResponse {}))
    }
}

/// Ends when the agent goes down, or is gone.
async fn closed(closing: &mut tokio::sync::watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

fn told(change: &Change) -> v1::WatchWorkspacesResponse {
    match change {
        Change::Now(view) => {
            v1::WatchWorkspacesResponse { workspace: Some(wire::workspace(view)), ..Default::default() }
        }
        Change::Released { name, generation, time } => v1::WatchWorkspacesResponse {
            workspace: Some(v1::Workspace {
                name: name.clone(),
                generation: *generation,
                transition_time: Some(wire::moment(*time)),
                ..Default::default()
            }),
            released: true,
            synced: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_bounded_and_any_number_is_an_answer() {
        let check = |seconds, nanos, expect: Option<Duration>| {
            assert_eq!(
                timeout("timeout", Some(prost_types::Duration { seconds, nanos })).ok(),
                expect,
                "{seconds} {nanos}"
            );
        };
        check(0, 0, Some(Duration::ZERO));
        check(60, 0, Some(TIMEOUT_MAX));
        check(1, 500_000_000, Some(Duration::from_millis(1500)));
        for (seconds, nanos) in
            [(60, 1), (-1, 0), (0, -1), (i64::MIN, 0), (i64::MIN, i32::MIN), (i64::MAX, i32::MAX), (0, i32::MIN)]
        {
            check(seconds, nanos, None);
        }
        assert_eq!(timeout("timeout", None).ok(), Some(QUIESCE_TIMEOUT));
    }
}
