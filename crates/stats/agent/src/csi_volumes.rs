//! The statistics of CSI volumes, from their drivers. Owns the latest answer for each volume, and the calls under way: one that hangs
//! holds up no other volume and no sample.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::k8s::Pod;
use model::stats::VolumeSample;
use model::{PodRef, PodUid};
use tokio::task::{Id, JoinError, JoinSet};
use volumes_core::csi::qualified_name;
use volumes_core::csi::stats::Measurement;

use base_agent::context::Context;
use volumes_agent::Csi;

/// A volume of a pod to ask for.
#[derive(Clone, Debug)]
pub(super) struct CsiVolume {
    /// Its name in the pod's spec.
    pub(super) volume: Box<str>,
    /// Its name on disk.
    pub(super) name: String,
    pub(super) claim: Option<Box<str>>,
}

type Key = (PodUid, Box<str>);

pub(super) struct CsiVolumes {
    ctx: Arc<Context>,
    csi: Csi,
    measured: BTreeMap<Key, VolumeSample>,
    calls: JoinSet<(Key, Option<VolumeSample>)>,
    under_way: BTreeMap<Key, Id>,
}

impl CsiVolumes {
    pub(super) fn new(ctx: Arc<Context>, csi: Csi) -> Self {
        Self { ctx, csi, measured: BTreeMap::new(), calls: JoinSet::new(), under_way: BTreeMap::new() }
    }

    pub(super) fn is_asking(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Only pods for which this holds are remembered.
    pub(super) fn retain(&mut self, is_known: impl Fn(&PodUid) -> bool) {
        self.measured.retain(|(uid, _), _| is_known(uid));
    }

    /// Asks for these volumes of the pod, which has no others; what is asked for already is not asked for twice.
    pub(super) fn ask(&mut self, pod: &Arc<Pod>, volumes: Vec<CsiVolume>) {
        let uid = PodRef::of(pod).uid;
        let wanted: BTreeSet<&str> = volumes.iter().map(|wanted| &*wanted.volume).collect();
        self.measured.retain(|(of, name), _| *of != uid || wanted.contains(&**name));
        for wanted in volumes {
            let key = (uid.clone(), wanted.volume.clone());
            if self.under_way.contains_key(&key) {
                continue;
            }
            let (ctx, csi, pod, answered) = (self.ctx.clone(), self.csi.clone(), pod.clone(), key.clone());
            let call = async move { (answered, measure(&ctx, &csi, &pod, wanted).await) };
            self.under_way.insert(key, self.calls.spawn(call).id());
        }
    }

    /// Waits for the next answer. Cancel safe.
    pub(super) async fn next(&mut self) {
        match self.calls.join_next().await {
            Some(Ok((key, sample))) => {
                self.under_way.remove(&key);
                match sample {
                    Some(sample) => self.measured.insert(key, sample),
                    None => self.measured.remove(&key),
                };
            }
            Some(Err(error)) => self.lost(&error),
            None => {}
        }
    }

    fn lost(&mut self, error: &JoinError) {
        tracing::error!(err = %error, "Measurement of a CSI volume panicked, retrying with a later sample");
        self.under_way.retain(|_, id| *id != error.id());
    }

    /// The latest statistics of the pod's volumes.
    pub(super) fn of(&self, pod: &PodUid) -> impl Iterator<Item = VolumeSample> {
        let from = (pod.clone(), Box::from(""));
        let of_pod = self.measured.range(from..).take_while(move |((uid, _), _)| uid == pod);
        of_pod.map(|(_, sample)| sample.clone())
    }
}

async fn measure(ctx: &Context, csi: &Csi, pod: &Pod, wanted: CsiVolume) -> Option<VolumeSample> {
    let identity = PodRef::of(pod);
    let CsiVolume { volume, name, claim } = wanted;
    let measured = match csi.measure(ctx, &identity.uid, &name).await {
        Ok(measured) => measured?,
        Err(err) => {
            tracing::debug!(pod = %identity, podUID = %identity.uid, volumeName = &*volume, err, "Failed to calculate volume metrics");
            return None;
        }
    };
    let (driver, Measurement { space, used, condition }) = measured;
    if let Some(condition) = condition.as_ref().filter(|condition| condition.is_abnormal) {
        let message = format!("Volume {volume}: {}", condition.message);
        ctx.recorder.warning(&identity, None, "VolumeConditionAbnormal", message);
    }
    Some(VolumeSample {
        name: volume,
        claim,
        plugin: qualified_name(&driver).into(),
        is_off_disk: true,
        space,
        used,
        is_abnormal: condition.map(|condition| condition.is_abnormal),
    })
}
