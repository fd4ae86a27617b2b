//! Amounts as people read them.

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

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

fn bytes(number: u64) -> String {
    let Some((unit, size)) = UNITS.iter().find(|(_, size)| number >= *size) else {
        return format!("{number} B");
    };
    let tenths = u128::from(number) * 10 / u128::from(*size);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit_and_counts_have_none() {
        let shown =
            [0, 1023, 1024, 96 << 20, 3 << 29, u64::MAX].map(|number| amount("memory.available", number));
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "96.0 MiB", "1.5 GiB", "16777215.9 TiB"]);
        assert_eq!(amount("nodefs.inodesFree", 5000), "5000");
        assert_eq!(amount("pid.available", 30), "30");
    }
}
