//! Amounts of memory and CPU as people read them.

/// `512 B`, `12.3 MiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = "B";
    let (mut whole, mut tenths) = (count, 0);
    for next in UNITS {
        if whole < 1024 {
            break;
        }
        (tenths, whole, unit) = (whole % 1024 * 10 / 1024, whole / 1024, next);
    }
    if unit == "B" { format!("{whole} B") } else { format!("{whole}.{tenths} {unit}") }
}

/// Thousandths of a CPU, as in quantities of Kubernetes: `12m`.
#[must_use]
pub fn cores(nanocores: u64) -> String {
    format!("{}m", nanocores.div_ceil(1_000_000))
}

/// `1.5 GiB` of memory or storage; a plain number of anything else.
#[must_use]
pub(crate) fn amount(resource: &str, number: u64) -> String {
    match is_in_bytes(resource) {
        true => bytes(number),
        false => number.to_string(),
    }
}

/// Inodes and processes are counted.
fn is_in_bytes(resource: &str) -> bool {
    !resource.contains("pid") && !resource.contains("inodes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_in_the_largest_unit_that_fits() {
        let shown = [0, 1023, 1024, 1536, 12_900_000, u64::MAX].map(bytes);
        assert_eq!(shown.join(", "), "0 B, 1023 B, 1.0 KiB, 1.5 KiB, 12.3 MiB, 16383.9 PiB");
        assert_eq!([0, 1, 12_000_000, 2_500_000_000].map(cores).join(", "), "0m, 1m, 12m, 2500m");
    }

    #[test]
    fn bytes_have_a_unit_and_counts_have_none() {
        let shown = [0, 96 << 20, 3 << 29].map(|number| amount("memory.available", number));
        assert_eq!(shown, ["0 B", "96.0 MiB", "1.5 GiB"]);
        assert_eq!(amount("nodefs.inodesFree", 5000), "5000");
        assert_eq!(amount("pid.available", 30), "30");
    }
}
