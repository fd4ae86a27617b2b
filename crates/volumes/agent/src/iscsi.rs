//! Sessions with iSCSI targets: `iscsiadm` logs in and out, sysfs shows what is there. What is called and where is decided in
//! `volumes_core::iscsi`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use ports::HostError;
use volumes_core::iscsi::commands::{self, EXISTS, Portal};
use volumes_core::iscsi::{
    AfterAttempt, IscsiDisk, IscsiPlan, MAX_ATTEMPTS, MAX_RECORD, PLUGIN, RECORD, after_attempt, device_name,
    disks_dir, find_device, portal_of,
};

use super::mount_context::{MountContext, MountError};
use super::shared::Shared;
use super::{program, scsi};

const TOOL: &str = "iscsiadm";
/// Longer than the tool itself tries to log in.
const DEADLINE: Duration = Duration::from_secs(180);
const BY_PATH: &str = "/dev/disk/by-path";
const HOSTS: &str = "/sys/class/iscsi_host";
/// How long a device may take to appear, in seconds, and a multipath device on top of several.
const DEVICE_SECONDS: usize = 30;
const MULTIPATH_SECONDS: usize = 10;

/// How a run of the tool ended.
struct ToolResult {
    code: Option<i32>,
    /// Of both outputs, without the end of the line.
    output: String,
}

impl ToolResult {
    fn why(&self) -> String {
        match self.code {
            Some(code) => format!("exit status {code}"),
            None => "ended by a signal".to_owned(),
        }
    }
}

async fn run(ctx: &Context, args: Vec<String>) -> Result<ToolResult, HostError> {
    let end = ctx.processes.run(&program(TOOL, args, DEADLINE)).await.map_err(|error| {
        match error.is_not_found() {
            true => HostError::Invalid(format!("exec: {TOOL:?}: executable file not found in $PATH")),
            false => error,
        }
    })?;
    let output = [String::from_utf8_lossy(&end.output).into_owned(), end.stderr].concat();
    Ok(ToolResult { code: end.code, output: output.trim_end().to_owned() })
}

/// Logs in to the target through all portals, and returns the disk. Idempotent.
pub(crate) async fn attach(
    mount_context: &MountContext<'_>,
    plan: &IscsiPlan,
    secret: &BTreeMap<String, String>,
) -> Result<PathBuf, MountError> {
    let session = Session { mount_context, plan, secret };
    let transport = session.prepare_iface().await?;
    // Another volume of the target neither logs in at the same time nor out.
    let _permit = acquire_target(mount_context.shared, &plan.disk.iqn).await?;
    let portals = plan.disk.distinct_portals();
    let (mut found, mut last_error) = (BTreeMap::new(), String::new());
    for attempt in 1..=MAX_ATTEMPTS {
        for portal in &portals {
            if found.contains_key(portal) {
                continue;
            }
            match session.device(portal, &transport).await? {
                Ok(device) => drop(found.insert(*portal, device)),
                Err(why) => last_error = why,
            }
        }
        match after_attempt(attempt, found.len(), portals.len()) {
            AfterAttempt::Mount => break,
            AfterAttempt::TryOthers => {}
            AfterAttempt::Fail => {
                session.remove_own_iface().await?;
                return Err(MountError::Attach(format!(
                    "failed to get any path for iscsi disk, last err seen:\n{last_error}"
                )));
            }
        }
    }
    session.disk(found.into_values().collect(), portals.len()).await
}

async fn acquire_target(shared: &Shared, iqn: &str) -> Result<tokio::sync::OwnedSemaphorePermit, HostError> {
    shared.devices.acquire(&format!("{PLUGIN}/{iqn}")).await
}

struct Session<'a> {
    mount_context: &'a MountContext<'a>,
    plan: &'a IscsiPlan,
    secret: &'a BTreeMap<String, String>,
}

impl Session<'_> {
    /// Runs the tool until the pod is deleted.
    async fn run(&self, args: Vec<String>) -> Result<ToolResult, MountError> {
        let ran = self.mount_context.unless_leaving(run(self.mount_context.ctx, args)).await;
        ran.map_err(|error| match error {
            HostError::NotFinished(why) => MountError::Unknown(why),
            HostError::Io { .. } | HostError::Invalid(_) => MountError::Attach(chain(&error)),
        })
    }

    async fn sleep(&self) -> Result<(), MountError> {
        let clock = self.mount_context.ctx.clock;
        let slept = async {
            clock.sleep_until(clock.mono() + Duration::from_secs(1)).await;
            Ok(())
        };
        Ok(self.mount_context.unless_leaving(slept).await?)
    }

    /// The transport of the interface. A volume with an initiator of its own gets a copy of the interface.
    async fn prepare_iface(&self) -> Result<String, MountError> {
        let disk = &self.plan.disk;
        let shown = self.run(commands::iface(&disk.init_iface, "show")).await?;
        if shown.code != Some(0) {
            let (name, why) = (&disk.init_iface, shown.why());
            let text = format!("iscsi: could not read iface {name} error: {} ({why})", shown.output);
            return Err(MountError::Attach(text));
        }
        if !disk.initiator_name.is_empty() {
            self.copy_iface(&shown.output).await?;
        }
        commands::transport(&shown.output)
            .map(str::to_owned)
            .ok_or_else(|| MountError::Attach(format!("could not parse iface file for {}", disk.iface)))
    }

    async fn copy_iface(&self, shown: &str) -> Result<(), MountError> {
        let disk = &self.plan.disk;
        let mut settings = commands::settings(shown).map_err(|error| {
            MountError::Attach(format!("iscsi: failed to parse iface records: {shown} ({error})"))
        })?;
        settings.insert("iface.initiatorname".to_owned(), disk.initiator_name.clone());
        let created = self.run(commands::iface(&disk.iface, "new")).await?;
        if created.code != Some(0) && created.code != Some(EXISTS) {
            let text = format!("iscsi: failed to create new iface: {} ({})", created.output, created.why());
            return Err(MountError::Attach(text));
        }
        for (key, value) in &settings {
            let updated = self.run(commands::update_iface(&disk.iface, key, value)).await?;
            if updated.code != Some(0) {
                self.remove_own_iface().await?;
                let (output, why, used) = (&updated.output, updated.why(), &disk.init_iface);
                return Err(MountError::Attach(format!(
                    "iscsi: failed to update iface records: {output} ({why}). iface({used}) will be used"
                )));
            }
        }
        Ok(())
    }

    async fn remove_own_iface(&self) -> Result<(), MountError> {
        if self.plan.disk.has_own_iface() {
            self.run(commands::iface(&self.plan.disk.iface, "delete")).await?;
        }
        Ok(())
    }

    /// The device of the disk behind one portal, or why there is none.
    async fn device(&self, portal: &str, transport: &str) -> Result<Result<PathBuf, String>, MountError> {
        let (ctx, disk) = (self.mount_context.ctx, &self.plan.disk);
        let mut hosts = hosts_by_portal(ctx, &disk.iqn).await?;
        if !hosts.contains_key(portal) {
            if let Err(why) = self.login(portal).await? {
                return Ok(Err(why));
            }
            hosts = hosts_by_portal(ctx, &disk.iqn).await?;
        }
        let Some(host) = hosts.get(portal) else {
            return Ok(Err(format!("Could not get SCSI host number for portal {portal} after logging in")));
        };
        // Only this disk: the kernel is not to know disks of the target that no volume asked for.
        let scan = format!("/sys/class/scsi_host/host{host}/scan");
        scsi::write(ctx, Path::new(&scan), &format!("0 0 {}", disk.lun))
            .await
            .map_err(|error| MountError::Attach(chain(&error)))?;
        let device = device_name(portal, &disk.iqn, &disk.lun);
        for second in 0..DEVICE_SECONDS {
            if second > 0 {
                self.sleep().await?;
            }
            let names = ctx.files.list_names(Path::new(BY_PATH)).await?;
            if let Some(name) = find_device(&names, transport, &device) {
                return Ok(Ok(Path::new(BY_PATH).join(name)));
            }
        }
        let path = if transport == "tcp" { device } else { format!("pci-*-{device}") };
        Ok(Err(format!("Timed out waiting for device at path {BY_PATH}/{path} after {DEVICE_SECONDS}s")))
    }

    /// Finds the target at the portal and logs in, or says why not.
    async fn login(&self, portal: &str) -> Result<Result<(), String>, MountError> {
        let IscsiDisk { iqn, iface, .. } = &self.plan.disk;
        let at = Portal { portal, iqn, iface };
        // The record may exist.
        self.run(at.discovery("new")).await?;
        let discovery = self.plan.chap_discovery.then(|| at.authenticate_discovery(self.secret));
        for args in discovery.into_iter().flatten() {
            let updated = self.run(args).await?;
            if updated.code != Some(0) {
                return Ok(Err(format!(
                    "iscsi: failed to update discoverydb to portal {portal} error: {}",
                    updated.output
                )));
            }
        }
        let discovered = self.run(at.discover()).await?;
        if discovered.code != Some(0) {
            self.run(at.discovery("delete")).await?;
            return Ok(Err(format!(
                "iscsi: failed to sendtargets to portal {portal} output: {}, err {}",
                discovered.output,
                discovered.why()
            )));
        }
        let scanned = self.run(at.scan_manually()).await?;
        if scanned.code != Some(0) {
            tracing::warn!(
                portal,
                output = scanned.output,
                "Failed to update iSCSI node with node.session.scan=manual"
            );
        }
        let session = self.plan.chap_session.then(|| at.authenticate_session(self.secret));
        for args in session.into_iter().flatten() {
            let updated = self.run(args).await?;
            if updated.code != Some(0) {
                return Ok(Err(format!(
                    "iscsi: failed to update iscsi node to portal {portal} error: {}",
                    updated.output
                )));
            }
        }
        let logged_in = self.run(at.login()).await?;
        if logged_in.code != Some(0) && logged_in.code != Some(EXISTS) {
            self.run(at.discard_node()).await?;
            let (output, why) = (&logged_in.output, logged_in.why());
            return Ok(Err(format!("iscsi: failed to attach disk: Error: {output} ({why})")));
        }
        let manual = self.run(at.start_manually()).await?;
        if manual.code != Some(0) {
            tracing::warn!(portal, output = manual.output, "Failed to set iSCSI login mode to manual");
        }
        Ok(Ok(()))
    }

    /// The multipath device on top of the disks, or the first of them. One that was asked for gets time to appear.
    async fn disk(&self, disks: Vec<PathBuf>, portals: usize) -> Result<PathBuf, MountError> {
        let seconds = if portals > 1 { MULTIPATH_SECONDS } else { 1 };
        for second in 0..seconds {
            if second > 0 {
                self.sleep().await?;
            }
            if let Some(mapped) = scsi::multipath_device(self.mount_context.ctx, &disks).await {
                return Ok(mapped);
            }
        }
        let first = disks.into_iter().next();
        first.ok_or_else(|| MountError::Attach("failed to get any path for iscsi disk".to_owned()))
    }
}

/// The SCSI host of each portal through which the target has a session.
async fn hosts_by_portal(ctx: &Context, iqn: &str) -> Result<BTreeMap<String, u32>, HostError> {
    let mut hosts = BTreeMap::new();
    for (host, session) in sessions(ctx, iqn).await? {
        for connection in names(ctx, &session, "connection").await? {
            let dir = session.join(&connection).join("iscsi_connection").join(&connection);
            let files =
                ["address", "port", "persistent_address", "persistent_port"].map(|name| dir.join(name));
            let texts = ctx.files.read_each(files.to_vec()).await;
            if let [Some(address), Some(port), Some(persistent_address), Some(persistent_port)] =
                texts.as_slice()
            {
                hosts.insert(portal_of(address, port), host);
                hosts.insert(portal_of(persistent_address, persistent_port), host);
            }
        }
    }
    Ok(hosts)
}

/// The sessions with the target: SCSI host and directory.
async fn sessions(ctx: &Context, iqn: &str) -> Result<Vec<(u32, PathBuf)>, HostError> {
    let (root, mut found) = (Path::new(HOSTS), Vec::new());
    for host in names(ctx, root, "host").await? {
        let Some(number) = host.strip_prefix("host").and_then(|number| number.parse().ok()) else { continue };
        let device = root.join(&host).join("device");
        for session in names(ctx, &device, "session").await? {
            let dir = device.join(&session);
            let target = dir.join("iscsi_session").join(&session).join("targetname");
            if ctx.files.read_text(&target).await.is_ok_and(|name| name.trim() == iqn) {
                found.push((number, dir));
            }
        }
    }
    Ok(found)
}

async fn names(ctx: &Context, dir: &Path, prefix: &str) -> Result<Vec<String>, HostError> {
    let names = ctx.files.list_names(dir).await?.into_iter();
    Ok(names.filter(|name| name.starts_with(prefix)).collect())
}

/// Removes the disk from the node, which nothing has mounted, and logs out of its target if it was the last. Idempotent until its
/// directory is removed.
pub(crate) async fn detach(ctx: &Context, shared: &Shared, global: &Path) -> Result<(), String> {
    let failed = |error: HostError| chain(&error);
    let disk = match ctx.files.read_file(&global.join(RECORD), MAX_RECORD, false).await {
        Ok(record) => IscsiDisk::of_record(&record)?,
        Err(error) if error.is_not_found() => IscsiDisk::of_global_mount(global)
            .ok_or_else(|| format!("iscsi detach disk: malformatted mnt path: {}", global.display()))?,
        Err(error) => return Err(failed(error)),
    };
    delete_devices(ctx, &disk).await;
    let _permit = acquire_target(shared, &disk.iqn).await.map_err(failed)?;
    if count_disks(ctx, &disk).await.map_err(failed)? <= 1 {
        logout(ctx, &disk)
            .await
            .map_err(|error| format!("failed to finish detachISCSIDisk, err: {error}"))?;
    }
    Ok(())
}

/// Logging out ends what this cannot.
async fn delete_devices(ctx: &Context, disk: &IscsiDisk) {
    let mut devices = Vec::new();
    for (host, session) in sessions(ctx, &disk.iqn).await.unwrap_or_default() {
        let block = format!("target{host}:0:0/{host}:0:0:{}/block", disk.lun);
        devices.extend(ctx.files.list_names(&session.join(block)).await.unwrap_or_default());
    }
    let paths: Vec<PathBuf> = devices.iter().map(|name| Path::new("/dev").join(name)).collect();
    if let Some(mapped) = scsi::multipath_device(ctx, &paths).await
        && let Err(err) = scsi::remove_multipath_device(ctx, &mapped).await
    {
        tracing::warn!(device = %mapped.display(), err, "Failed to flush multipath device map");
    }
    for device in devices {
        if let Err(err) = scsi::delete_device(ctx, &device).await {
            tracing::warn!(device, err = chain(&err), "Failed to delete block device");
        }
    }
}

/// How many disks of the target this kubelet has, this one included.
async fn count_disks(ctx: &Context, disk: &IscsiDisk) -> Result<usize, HostError> {
    let (prefix, mut count) = (disk.target_prefix(), 0);
    let root = disks_dir(&ctx.settings.paths.root);
    for iface in ctx.files.list_names(&root).await? {
        count += names(ctx, &root.join(iface), &prefix).await?.len();
    }
    let devices = root.join("volumeDevices");
    for iface in ctx.files.list_names(&devices).await? {
        count += names(ctx, &devices.join(iface), &prefix).await?.len();
    }
    Ok(count)
}

async fn logout(ctx: &Context, disk: &IscsiDisk) -> Result<(), String> {
    let IscsiDisk { iqn, iface, .. } = disk;
    for portal in disk.distinct_portals() {
        let at = Portal { portal, iqn, iface };
        for args in [at.logout(), at.delete_node()] {
            let ran = run(ctx, args).await.map_err(|error| chain(&error))?;
            if ran.code != Some(0) && !commands::is_absent(ran.code) {
                return Err(format!("{} ({})", ran.output, ran.why()));
            }
        }
    }
    if disk.has_own_iface() {
        let ran = run(ctx, commands::iface(iface, "delete")).await.map_err(|error| chain(&error))?;
        if ran.code != Some(0) {
            // The tool has no exit status of its own for an interface that is gone already.
            tracing::warn!(iface, output = ran.output, "Failed to delete iSCSI interface");
        }
    }
    Ok(())
}
