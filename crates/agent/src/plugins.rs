//! The task that registers the plugins whose sockets are in the registration directory.
//!
//! ```text
//! sockets, ends of operations, time --> Registrations (kubelet_core::plugins::registration) --> operations
//! ```
//! Owns: which plugins are registered, and every call to a registration socket. What is done with a plugin is up to the handler of
//! its type. A plugin that does not answer delays no other. Sleeps until a socket or a plugin needs it.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use base_agent::plugin_handler::{PluginHandler, PluginHandlers};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use kubelet_core::plugins::registration::{Operation, Outcome, PluginName, Refusal, Registrations};
use model::plugins::{RegisteredPlugin, SocketTree};
use ports::HostError;
use ports::plugins::{PluginError, PluginInfo, PluginRegistration, PluginResult, Plugins};

use crate::metrics::{PluginMetrics, PluginSocket};

/// The registration directory, in the kubelet's root directory.
pub(crate) const DIR: &str = "plugins_registry";
pub(crate) const DIR_MODE: u32 = 0o750;
/// Delay before the directory is created and watched again.
const WATCH_RETRY: Duration = Duration::from_secs(1);

/// Starts the registration of plugins, with the handler of each type.
pub(crate) fn start(ctx: &Arc<Context>, plugins: Arc<dyn Plugins>, handlers: PluginHandlers) {
    ctx.tasks.spawn("plugin registration", PluginRegistry::new(ctx.clone(), plugins, handlers).run());
}

struct PluginRegistry {
    ctx: Arc<Context>,
    plugins: Arc<dyn Plugins>,
    handlers: PluginHandlers,
    registrations: Registrations,
    operations: FuturesUnordered<BoxFuture<'static, Step>>,
    /// Sockets and directories beyond the limits, as last logged.
    left_out: usize,
    /// Why the last registration failed, by socket.
    errors: BTreeMap<PathBuf, String>,
}

impl fmt::Debug for PluginRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginRegistry").field("registrations", &self.registrations).finish_non_exhaustive()
    }
}

/// What an operation has come to.
enum Step {
    /// The plugin has answered GetInfo, or not.
    Info {
        socket: PathBuf,
        info: PluginResult<PluginInfo>,
    },
    End {
        socket: PathBuf,
        end: End,
    },
}

struct End {
    outcome: Outcome,
    error: Option<String>,
}

impl End {
    const fn failed(error: String) -> Self {
        Self { outcome: Outcome::Failed, error: Some(error) }
    }
}

impl PluginRegistry {
    fn new(ctx: Arc<Context>, plugins: Arc<dyn Plugins>, handlers: PluginHandlers) -> Self {
        let (registrations, operations) = (Registrations::default(), FuturesUnordered::new());
        let errors = BTreeMap::new();
        Self { ctx, plugins, handlers, registrations, operations, left_out: 0, errors }
    }

    /// Runs until the tasks stop; plugins stay registered then. Every select arm is cancel safe.
    async fn run(mut self) {
        let clock = self.ctx.clock;
        let mut trees = socket_trees(self.ctx.clone(), self.ctx.settings.paths.root.join(DIR));
        loop {
            self.start_due();
            self.publish();
            let wake_at = self.registrations.wake_at();
            tokio::select! {
                Some(tree) = trees.next() => self.handle_tree(&tree),
                Some(step) = self.operations.next() => self.handle_step(step),
                () = clock.sleep_until_some(wake_at) => {}
            }
        }
    }

    fn handle_tree(&mut self, tree: &SocketTree) {
        if tree.left_out > 0 && tree.left_out != self.left_out {
            let dir = self.ctx.settings.paths.root.join(DIR);
            tracing::warn!(path = %dir.display(), count = tree.left_out, "Too many plugin sockets or directories, ignoring some");
        }
        self.left_out = tree.left_out;
        self.errors.retain(|socket, _| tree.sockets.contains_key(socket));
        self.registrations.observe(tree);
    }

    fn start_due(&mut self) {
        for operation in self.registrations.start_due(self.ctx.clock.mono()) {
            match operation {
                Operation::Register { socket } => {
                    let registration = self.plugins.registration(&socket);
                    self.operations.push(Box::pin(async move {
                        let info = registration.info().await;
                        Step::Info { socket, info }
                    }));
                }
                Operation::Deregister { socket, kind, plugin } => {
                    self.start_deregister(socket, &kind, plugin)
                }
            }
        }
    }

    fn start_deregister(&self, socket: PathBuf, kind: &str, plugin: RegisteredPlugin) {
        let handler = self.handlers.get(kind).cloned();
        tracing::info!(path = %socket.display(), r#type = kind, plugin = plugin.name, "Deregistering plugin");
        self.push_guarded(socket, Outcome::Deregistered, async move {
            if let Some(handler) = handler {
                handler.deregister(&plugin.name, &plugin.endpoint).await;
            }
            End { outcome: Outcome::Deregistered, error: None }
        });
    }

    /// A panic of a handler ends only its operation, with the outcome `after_panic`.
    fn push_guarded(
        &self,
        socket: PathBuf,
        after_panic: Outcome,
        operation: impl Future<Output = End> + Send + 'static,
    ) {
        self.operations.push(Box::pin(async move {
            let end = AssertUnwindSafe(operation).catch_unwind().await;
            let error = || Some("the handler of the plugin panicked".to_owned());
            let end = end.unwrap_or_else(|_| End { outcome: after_panic, error: error() });
            Step::End { socket, end }
        }));
    }

    fn handle_step(&mut self, step: Step) {
        match step {
            Step::Info { socket, info: Ok(info) } => self.continue_with(socket, info),
            Step::Info { socket, info: Err(error) } => self.handle_end(&socket, End::failed(no_info(&error))),
            Step::End { socket, end } => self.handle_end(&socket, end),
        }
    }

    /// Registers the plugin at the socket, now that it is known what it is.
    fn continue_with(&mut self, socket: PathBuf, info: PluginInfo) {
        let PluginInfo { kind, name, endpoint, supported_versions: versions } = info;
        let registration = self.plugins.registration(&socket);
        let Some(handler) = self.handlers.get(&*kind).cloned() else {
            let refusal = Refusal::NoHandler { kind, socket: socket.clone() };
            self.push_guarded(socket, Outcome::Failed, async move { refuse(&*registration, &refusal).await });
            return;
        };
        let endpoint = if endpoint.is_empty() { socket.clone() } else { PathBuf::from(endpoint) };
        let plugin = RegisteredPlugin { name, endpoint, versions };
        if !self.registrations.claim(&socket, &PluginName::of(&kind, &plugin)) {
            self.handle_end(&socket, End { outcome: Outcome::Busy, error: None });
            return;
        }
        self.push_guarded(socket, Outcome::Failed, async move {
            register(&*registration, &*handler, kind, plugin).await
        });
    }

    fn handle_end(&mut self, socket: &Path, end: End) {
        let End { outcome, error } = end;
        match error {
            Some(error) => {
                tracing::error!(path = %socket.display(), err = error, "Failed to register plugin");
                self.errors.insert(socket.to_owned(), error);
            }
            None => drop(self.errors.remove(socket)),
        }
        if let Outcome::Registered { kind, plugin } = &outcome {
            let RegisteredPlugin { name, endpoint, versions } = plugin;
            tracing::info!(
                path = %socket.display(), r#type = kind, plugin = name, endpoint = %endpoint.display(), versions = ?versions,
                "Registered plugin"
            );
        }
        self.registrations.finished(socket, outcome, self.ctx.clock.mono());
    }

    fn publish(&self) {
        let rows = self.registrations.states().map(|state| {
            let name = |of: fn(&PluginName) -> &String| state.name.map(of).cloned().unwrap_or_default();
            PluginSocket {
                path: state.path.to_string_lossy().into_owned(),
                is_found: state.is_found,
                is_registered: state.is_registered,
                kind: name(|name| &name.kind),
                name: name(|name| &name.name),
                error: self.errors.get(state.path).cloned().unwrap_or_default(),
            }
        });
        self.ctx.metrics.get::<PluginMetrics>().set(rows.collect());
    }
}

fn no_info(error: &PluginError) -> String {
    match error {
        PluginError::Unreachable { .. } | PluginError::Listen { .. } => format!("dial failed: {error}"),
        PluginError::Failed { .. } | PluginError::TimedOut { .. } | PluginError::Malformed(_) => {
            format!("failed to get plugin info using RPC GetInfo: {error}")
        }
    }
}

/// Validates the plugin, registers it and reports that to it.
async fn register(
    registration: &dyn PluginRegistration,
    handler: &dyn PluginHandler,
    kind: String,
    plugin: RegisteredPlugin,
) -> End {
    if let Err(why) = handler.validate(&plugin) {
        return refuse(registration, &Refusal::Invalid(why)).await;
    }
    if let Err(why) = handler.register(&plugin).await {
        return refuse(registration, &Refusal::NotRegistered(why)).await;
    }
    if let Err(error) = registration.notify(Ok(())).await {
        handler.deregister(&plugin.name, &plugin.endpoint).await;
        let error = format!("failed to send registration status: {error}");
        return End { outcome: Outcome::Withdrawn, error: Some(error) };
    }
    End { outcome: Outcome::Registered { kind, plugin }, error: None }
}

/// Reports to the plugin that it is not registered.
async fn refuse(registration: &dyn PluginRegistration, refusal: &Refusal) -> End {
    let reason = refusal.to_string();
    match registration.notify(Err(reason.clone())).await {
        Ok(()) => End::failed(reason),
        Err(error) => End::failed(format!("{reason}; failed to send error: {error}")),
    }
}

/// The sockets in the directory, at once and after each change. The directory is created again if it is removed.
fn socket_trees(ctx: Arc<Context>, dir: PathBuf) -> BoxStream<'static, SocketTree> {
    let watched: Result<BoxStream<'static, SocketTree>, HostError> = ctx.files.watch_sockets(&dir);
    stream::unfold((ctx, dir, watched), |(ctx, dir, mut watched)| async move {
        loop {
            match &mut watched {
                Ok(trees) => {
                    if let Some(tree) = trees.next().await {
                        return Some((tree, (ctx, dir, watched)));
                    }
                }
                Err(error) => {
                    tracing::error!(path = %dir.display(), err = chain(error), "Failed to watch for plugins, retrying");
                }
            }
            ctx.clock.sleep_until(ctx.clock.mono() + WATCH_RETRY).await;
            watched = match ctx.files.make_dir(&dir, DIR_MODE).await {
                Ok(()) => ctx.files.watch_sockets(&dir),
                Err(error) => Err(error),
            };
        }
    })
    .boxed()
}
