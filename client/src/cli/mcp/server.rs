//! The tools as an MCP server: what is offered, calls, their progress and their cancellation. The protocol itself is rmcp's.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use dormouse_client::{
    FilesClient, Waker, Waking,
    tools::{self, Output, Permissions, Session},
};
use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
        PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ServerCapabilities, ServerConfig, Tool,
        ToolAnnotations,
    },
    service::RequestContext,
};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls under way at once, over all sessions. Each may hold a whole search in memory.
const CALLS_MAX: usize = 32;

const INSTRUCTIONS: &str = "The files of one workspace. Paths are absolute inside it. search_files finds text in files and \
    list_files finds files by name; read_file reads lines; edit_file changes a file, held to its revision. The workspace may \
    be asleep: reading does not wake it, changing does. An error says what to call next.";

/// What all sessions share.
pub struct Shared {
    session: Session,
    permissions: Permissions,
    files: FilesClient,
    waker: Option<Arc<dyn Waker>>,
    calls: Semaphore,
}

impl Shared {
    pub fn new(session: Session, permissions: Permissions, files: FilesClient, waker: Option<Arc<dyn Waker>>) -> Self {
        Self { session, permissions, files, waker, calls: Semaphore::new(CALLS_MAX) }
    }

    pub fn workspace(&self) -> &str {
        self.session.workspace()
    }
}

/// One session's server.
pub struct Server {
    shared: Arc<Shared>,
    /// Given back when the session ends.
    _place: Option<OwnedSemaphorePermit>,
}

impl Server {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, _place: None }
    }

    /// A session that holds one of a bounded number of places.
    pub fn in_place(shared: Arc<Shared>, place: OwnedSemaphorePermit) -> Self {
        Self { shared, _place: Some(place) }
    }

    async fn run(&self, name: &str, arguments: &Value, context: &RequestContext<RoleServer>) -> Option<Output> {
        let Ok(_call) = self.shared.calls.try_acquire() else {
            let text = format!(
                "dependency_unavailable: {CALLS_MAX} calls are under way. Next: wait for one of them, then call again."
            );
            return Some(Output { text, is_error: true });
        };
        let mut files = self.shared.files.clone();
        if let (Some(waker), Some(token)) = (&self.shared.waker, context.meta.get_progress_token()) {
            let teller = Teller { peer: context.peer.clone(), token, told: AtomicU32::new(0) };
            files = files.with_waker(Arc::new(TellingWaker { waker: waker.clone(), teller }));
        }
        tools::call(name, arguments, &files, &self.shared.session).await
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let info = Implementation::new("dormouse", env!("CARGO_PKG_VERSION")).with_title("Dormouse");
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities).with_server_info(info).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.shared.permissions.tools().map(offered).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.shared.permissions.tools().any(|tool| tool.name == *request.name) {
            return Err(ErrorData::invalid_params(format!("no tool is called {:?}", request.name), None));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let output = tokio::select! {
            output = self.run(&request.name, &arguments, &context) => output,
            // Dropping the call ends its RPC; nobody waits for this answer.
            () = context.ct.cancelled() => None,
        };
        let Some(output) = output else { return Err(ErrorData::internal_error("the call was cancelled", None)) };
        let content = vec![ContentBlock::text(output.text)];
        let result = if output.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
        Ok(result.into())
    }
}

fn offered(tool: &'static tools::Tool) -> Tool {
    let annotations = ToolAnnotations::from_raw(
        Some(tool.title.clone()),
        Some(tool.read_only()),
        Some(tool.destructive()),
        Some(tool.idempotent()),
        Some(false),
    );
    Tool::new(tool.name.as_str(), tool.description.as_str(), tool.input_schema.clone()).with_annotations(annotations)
}

/// Tells whoever asked for progress how a call gets on.
struct Teller {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    told: AtomicU32,
}

impl Teller {
    async fn tell(&self, message: &str) {
        let step = self.told.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let progress = ProgressNotificationParam::new(self.token.clone(), f64::from(step)).with_message(message);
        // An agent that has gone is noticed by its call.
        let _ = self.peer.notify_progress(progress).await;
    }
}

/// Wakes, and says so.
struct TellingWaker {
    waker: Arc<dyn Waker>,
    teller: Teller,
}

impl Waker for TellingWaker {
    fn wake<'a>(&'a self, workspace: &'a str) -> Waking<'a> {
        Box::pin(async move {
            self.teller.tell("waking workspace").await;
            let woken = self.waker.wake(workspace).await;
            if woken.is_ok() {
                self.teller.tell("workspace woken").await;
            }
            woken
        })
    }
}
