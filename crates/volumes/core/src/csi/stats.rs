//! What the answer of a driver to NodeGetVolumeStats means: how full a volume is, and whether it is healthy.

use model::csi::{Usage, VolumeCondition, VolumeStats};
use model::stats::{FilesystemSpace, TreeUsage};

/// How full a volume is, as its driver says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurement {
    pub space: FilesystemSpace,
    pub used: TreeUsage,
    /// `None` if the health of volumes is not reported.
    pub condition: Option<VolumeCondition>,
}

/// What the driver measured; what it leaves out is 0. `reports_condition`: the driver says whether volumes are healthy, and the
/// kubelet reports that.
///
/// # Errors
/// The driver reports nothing.
pub fn measurement(answer: &VolumeStats, reports_condition: bool) -> Result<Measurement, String> {
    if !reports_condition && answer.bytes.is_none() && answer.inodes.is_none() {
        return Err("failed to get usage from response. usage is nil".to_owned());
    }
    let (bytes, inodes) = (answer.bytes.unwrap_or_default(), answer.inodes.unwrap_or_default());
    Ok(Measurement {
        space: space(bytes, inodes),
        used: TreeUsage { bytes: number(bytes.used), inodes: number(inodes.used) },
        condition: reports_condition.then(|| answer.condition.clone().unwrap_or_default()),
    })
}

fn space(bytes: Usage, inodes: Usage) -> FilesystemSpace {
    FilesystemSpace {
        device: 0,
        capacity_bytes: number(bytes.total),
        available_bytes: number(bytes.available),
        used_bytes: number(bytes.used),
        inodes: number(inodes.total),
        inodes_free: number(inodes.available),
    }
}

/// A negative number, which the specification forbids, is 0.
fn number(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: Usage = Usage { available: 1, total: 10, used: 2 };
    const INODES: Usage = Usage { available: 100, total: 1000, used: 200 };

    /// The first cases of the Go kubelet's `TestVolumeStats`.
    #[test]
    fn usage_is_that_of_the_driver_and_missing_units_are_zero() {
        let answer = VolumeStats { bytes: Some(BYTES), inodes: Some(INODES), condition: None };
        let measured = measurement(&answer, false).unwrap();
        assert_eq!((measured.space.capacity_bytes, measured.space.available_bytes), (10, 1));
        assert_eq!((measured.space.inodes, measured.space.inodes_free), (1000, 100));
        assert_eq!(measured.used, TreeUsage { bytes: 2, inodes: 200 });
        assert_eq!(measured.condition, None);
        let only_bytes = VolumeStats { inodes: None, ..answer };
        let measured = measurement(&only_bytes, false).unwrap();
        assert_eq!((measured.space.capacity_bytes, measured.space.inodes, measured.used.inodes), (10, 0, 0));
    }

    #[test]
    fn an_answer_without_usage_is_an_error_unless_it_has_a_condition() {
        let nothing = VolumeStats::default();
        let expected = "failed to get usage from response. usage is nil";
        assert_eq!(measurement(&nothing, false), Err(expected.to_owned()));
        let measured = measurement(&nothing, true).unwrap();
        assert_eq!(measured.condition, Some(VolumeCondition::default()), "no condition is a normal one");
    }

    #[test]
    fn a_condition_is_ignored_unless_conditions_are_reported() {
        let condition = Some(VolumeCondition { is_abnormal: true, message: "broken".to_owned() });
        let answer = VolumeStats { bytes: Some(BYTES), inodes: None, condition: condition.clone() };
        assert_eq!(measurement(&answer, false).unwrap().condition, None);
        assert_eq!(measurement(&answer, true).unwrap().condition, condition);
    }

    #[test]
    fn negative_numbers_are_zero() {
        let bytes = Some(Usage { available: -1, total: i64::MIN, used: -5 });
        let answer = VolumeStats { bytes, inodes: None, condition: None };
        assert_eq!(measurement(&answer, false), Ok(Measurement::default()));
    }
}
