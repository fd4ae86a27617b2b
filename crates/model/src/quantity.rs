//! Arithmetic on Kubernetes resource quantities.

use std::fmt;

use crate::k8s::Quantity;

/// A parsed quantity. Kept in thousandths (so that `250m` of a core is exact), wide enough for any value that the
/// API accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    milli: i128,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantity {text:?} is not a number with an optional suffix (n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, e<exp>)"
)]
pub struct QuantityError {
    pub text: String,
}

impl Amount {
    pub const ZERO: Self = Self { milli: 0 };

    #[must_use]
    pub const fn from_milli(milli: i128) -> Self {
        Self { milli }
    }

    #[must_use]
    pub const fn from_units(units: i64) -> Self {
        Self { milli: units as i128 * 1000 }
    }

    /// Thousandths, rounded up as the API does for finer fractions.
    #[must_use]
    pub fn milli(self) -> i64 {
        i64::try_from(self.milli).unwrap_or(if self.milli < 0 { i64::MIN } else { i64::MAX })
    }

    /// Whole units, rounded away from zero: a fraction of a byte still needs a byte.
    #[must_use]
    pub fn units(self) -> i64 {
        let up = if self.milli >= 0 { (self.milli + 999) / 1000 } else { (self.milli - 999) / 1000 };
        i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
    }

    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.milli == 0
    }

    /// `ceil(self / divisor)`, the rule of `resourceFieldRef`. A zero divisor means one unit.
    #[must_use]
    pub fn div_ceil(self, divisor: Self) -> i64 {
        let divisor = if divisor.milli <= 0 { 1000 } else { divisor.milli };
        let quotient = self.milli / divisor + i128::from(self.milli % divisor > 0);
        i64::try_from(quotient).unwrap_or(i64::MAX)
    }

    /// Reads any form the API accepts.
    ///
    /// # Errors
    /// The text is empty, has no digits, an unknown suffix, or exceeds what 128 bits of thousandths hold.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        parse_milli(text.trim()).map(Self::from_milli).ok_or_else(|| QuantityError { text: text.to_owned() })
    }

    /// The amount in a Kubernetes object.
    ///
    /// # Errors
    /// As [`Amount::parse`].
    pub fn of(quantity: &Quantity) -> Result<Self, QuantityError> {
        Self::parse(&quantity.0)
    }
}

impl std::ops::Add for Amount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { milli: self.milli.saturating_add(other.milli) }
    }
}

impl std::ops::Sub for Amount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { milli: self.milli.saturating_sub(other.milli) }
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, |sum, next| sum + next)
    }
}

/// Plain decimal: `1500m` where a fraction remains, units otherwise.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milli % 1000 == 0 { write!(f, "{}", self.milli / 1000) } else { write!(f, "{}m", self.milli) }
    }
}

/// Whether a pod can have requests and limits of this resource of its own, next to those of its containers.
#[must_use]
pub fn may_be_pod_level(resource: &str) -> bool {
    resource == "cpu" || resource == "memory" || resource.starts_with("hugepages-")
}

/// Whole units as the API shows bytes: with the largest power of 1024 without a remainder.
#[must_use]
pub fn binary_text(units: i128) -> String {
    with_suffix(units, 1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}

/// Whole units as the API shows other counts: with the largest power of 1000 without a remainder.
#[must_use]
pub fn decimal_text(units: i128) -> String {
    with_suffix(units, 1000, ["", "k", "M", "G", "T", "P", "E"])
}

fn with_suffix(mut value: i128, base: i128, suffixes: [&str; 7]) -> String {
    let mut power = 0;
    while value != 0 && value % base == 0 && power < suffixes.len() - 1 {
        value /= base;
        power += 1;
    }
    format!("{value}{}", suffixes.get(power).copied().unwrap_or_default())
}

/// A factor as `numerator / denominator` of units.
struct Scale {
    numerator: i128,
    denominator: i128,
}

fn parse_milli(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let digits_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(digits_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 30 {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let fraction_scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scale = parse_suffix(suffix)?;
    let numerator = mantissa.checked_mul(scale.numerator)?.checked_mul(1000)?;
    let denominator = fraction_scale.checked_mul(scale.denominator)?;
    let milli = numerator / denominator + i128::from(numerator % denominator > 0);
    Some(if negative { -milli } else { milli })
}

fn parse_suffix(suffix: &str) -> Option<Scale> {
    let times = |numerator| Some(Scale { numerator, denominator: 1 });
    let per = |denominator| Some(Scale { numerator: 1, denominator });
    match suffix {
        "" => times(1),
        "n" => per(1_000_000_000),
        "u" => per(1_000_000),
        "m" => per(1000),
        "k" => times(1000),
        "M" => times(1_000_000),
        "G" => times(1_000_000_000),
        "T" => times(1_000_000_000_000),
        "P" => times(1_000_000_000_000_000),
        "E" => times(1_000_000_000_000_000_000),
        "Ki" => times(1 << 10),
        "Mi" => times(1 << 20),
        "Gi" => times(1 << 30),
        "Ti" => times(1 << 40),
        "Pi" => times(1 << 50),
        "Ei" => times(1 << 60),
        _ => parse_exponent(suffix),
    }
}

fn parse_exponent(suffix: &str) -> Option<Scale> {
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    Some(if exponent >= 0 {
        Scale { numerator: power, denominator: 1 }
    } else {
        Scale { numerator: 1, denominator: power }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, milli: i64) {
        assert_eq!(Amount::parse(text).map(Amount::milli), Ok(milli), "{text}");
    }

    #[test]
    fn every_quantity_suffix_of_the_api_is_parsed() {
        check("0", 0);
        check("250m", 250);
        check("1.5", 1500);
        check(".5", 500);
        check("2k", 2_000_000);
        check("1Ki", 1_024_000);
        check("64Mi", 64 * 1024 * 1024 * 1000);
        check("1e3", 1_000_000);
        check("1E-1", 100);
        check("-2", -2000);
        check("100u", 1);
        check("1n", 1);
    }

    #[test]
    fn invalid_quantities_are_rejected_by_name() {
        for text in ["", "m", "1.2.3", "1Xi", "0x10", "1e", "--1", "1 Mi"] {
            let error = Amount::parse(text).expect_err(text);
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn division_rounds_up_and_zero_divisor_means_one() {
        let amount = |text| Amount::parse(text).expect(text);
        assert_eq!(amount("250m").div_ceil(amount("1")), 1);
        assert_eq!(amount("64Mi").div_ceil(amount("1Mi")), 64);
        assert_eq!(amount("65Mi").div_ceil(amount("64Mi")), 2);
        assert_eq!(amount("3").div_ceil(Amount::ZERO), 3);
    }

    proptest! {
        #[test]
        fn formatted_quantities_parse_to_the_same_value(milli in -1_000_000_000_000_i128..1_000_000_000_000) {
            let amount = Amount::from_milli(milli);
            prop_assert_eq!(Amount::parse(&amount.to_string()), Ok(amount));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,40}") {
            let _ = Amount::parse(&text);
        }
    }
}
