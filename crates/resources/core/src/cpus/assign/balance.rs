//! How evenly CPUs are spread over NUMA nodes.

/// The standard deviation in thousandths, of a mean in thousandths; both are rounded, so that combinations which differ by less are equal.
pub(super) fn deviation(counts: &[usize]) -> u64 {
    let values: Vec<u64> = counts.iter().map(|count| *count as u64 * 1000).collect();
    let Some(len) = u64::try_from(values.len()).ok().filter(|len| *len > 0) else { return 0 };
    let mean = rounded_quotient(values.iter().sum(), len);
    let squares: u64 = values.iter().map(|value| value.abs_diff(mean).pow(2)).sum();
    rounded_root(squares, len)
}

const fn rounded_quotient(sum: u64, len: u64) -> u64 {
    (2 * sum + len) / (2 * len)
}

/// The root of `sum / len`, halves rounded up: half of the next number after twice the root.
const fn rounded_root(sum: u64, len: u64) -> u64 {
    (4 * sum / len).isqrt().div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_rounded_to_thousandths() {
        for (counts, expected) in [
            ([].as_slice(), 0),
            (&[5], 0),
            (&[4, 4, 4, 4], 0),
            (&[0, 1], 500),
            (&[1, 2, 3, 4], 1118),
            (&[0, 0, 1], 471),
            (&[20, 20, 4, 4], 8000),
            (&[13, 20, 20], 3300),
        ] {
            assert_eq!(deviation(counts), expected, "{counts:?}");
        }
    }
}
