//! `resource.Quantity` of Kubernetes 1.36 as parsing and defaulting leave it in memory, and as the hash function of the Go
//! kubelet prints it.
//!
//! Owns the representation only: numbers with a decimal scale, large decimal numbers, and the text where it is canonical.
//! What the kubelet itself computes with is `model::Amount`.

use std::cmp::Ordering;

/// Decimal places that a quantity keeps when it is parsed.
const NANO: i32 = 9;
/// Decimal places that a quantity keeps in a list of resources.
const MILLI: i32 = 3;
const MAX_BINARY: u128 = (1 << 63) - 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Quantity {
    number: Number,
    format: &'static str,
    /// The text it was parsed from, where that is canonical.
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// `value * 10^scale`.
    Small { value: i64, scale: i32 },
    /// `unscaled / 10^scale`.
    Large { unscaled: u128, scale: i32 },
}

impl Quantity {
    /// `None`: the text is not a quantity, or not reproduced here: negative large numbers and those beyond 128 bits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let small = |value, format, text: &str| {
            Some(Self { number: Number::Small { value, scale: 0 }, format, text: text.to_owned() })
        };
        match text {
            "" => return small(0, "", ""),
            "0" => return small(0, "DecimalSI", "0"),
            _ => {}
        }
        let parts = Parts::of(text)?;
        match parts.small() {
            Some((number, is_canonical)) => {
                let text = if is_canonical { text.to_owned() } else { String::new() };
                Some(Self { number, format: parts.suffix.format, text })
            }
            None => parts.large(),
        }
    }

    /// As in a list of resources: rounded up to thousandths.
    pub(super) fn round_up_to_milli(&mut self) -> Option<()> {
        match self.number {
            Number::Small { scale, .. } if scale >= -MILLI => return Some(()),
            Number::Small { value, scale } => {
                let value = i64::try_from(rescaled(value.try_into().ok()?, -scale, MILLI)?).ok()?;
                self.number = Number::Small { value, scale: -MILLI };
            }
            Number::Large { unscaled, scale } => {
                self.number = Number::Large { unscaled: rescaled(unscaled, scale, MILLI)?, scale: MILLI };
            }
        }
        self.text.clear();
        Some(())
    }

    pub(super) fn add(&mut self, other: &Self) -> Option<()> {
        self.text.clear();
        if self.is_zero() {
            self.format = other.format;
        }
        self.number = match (self.number, other.number) {
            (Number::Small { value, scale }, Number::Small { value: other_value, scale: other_scale }) => {
                match (value, other_value) {
                    (_, 0) => self.number,
                    (0, _) => other.number,
                    _ => small_sum((value, scale), (other_value, other_scale))?,
                }
            }
            (one, other) => {
                let scale = one.places().max(other.places());
                let [one, other] = [one.unscaled_at(scale)?, other.unscaled_at(scale)?];
                Number::Large { unscaled: one.checked_add(other)?, scale }
            }
        };
        Some(())
    }

    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        let scale = self.number.places().max(other.number.places());
        Some(self.number.unscaled_at(scale)?.cmp(&other.number.unscaled_at(scale)?))
    }

    fn is_zero(&self) -> bool {
        matches!(self.number, Number::Small { value: 0, .. } | Number::Large { unscaled: 0, .. })
    }

    /// The members as the hash function prints them.
    pub(super) fn print(&self) -> String {
        let (value, small_scale, large) = match self.number {
            Number::Small { value, scale } => (value, scale, "<nil>".to_owned()),
            Number::Large { unscaled, scale } => (0, 0, print_large(unscaled, scale)),
        };
        let (text, format) = (&self.text, self.format);
        format!(
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){small_scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec){large}}} \
             s:(string){text} Format:(resource.Format){format}}}"
        )
    }
}

impl Number {
    /// Decimal places, below zero for multiples of ten.
    fn places(self) -> i32 {
        match self {
            Self::Small { scale, .. } => -scale,
            Self::Large { scale, .. } => scale,
        }
    }

    fn unscaled_at(self, places: i32) -> Option<u128> {
        match self {
            Self::Small { value, scale } => rescaled(value.try_into().ok()?, -scale, places),
            Self::Large { unscaled, scale } => rescaled(unscaled, scale, places),
        }
    }
}

/// With the finer of both scales.
fn small_sum(one: (i64, i32), other: (i64, i32)) -> Option<Number> {
    let scale = one.1.min(other.1);
    let at_scale =
        |(value, of): (i64, i32)| value.checked_mul(10_i64.checked_pow(u32::try_from(of - scale).ok()?)?);
    Some(Number::Small { value: at_scale(one)?.checked_add(at_scale(other)?)?, scale })
}

/// The number with so many decimal places, rounded up.
fn rescaled(unscaled: u128, places: i32, wanted: i32) -> Option<u128> {
    let factor = 10_u128.checked_pow(places.abs_diff(wanted));
    match places.cmp(&wanted) {
        Ordering::Less => unscaled.checked_mul(factor?),
        Ordering::Equal => Some(unscaled),
        // A factor beyond 128 bits leaves nothing but what rounding up gives.
        Ordering::Greater => Some(factor.map_or(u128::from(unscaled > 0), |f| unscaled.div_ceil(f))),
    }
}

fn print_large(unscaled: u128, scale: i32) -> String {
    let [low, high] = [unscaled & u128::from(u64::MAX), unscaled >> 64];
    let words = match (low, high) {
        (0, 0) => "<nil>".to_owned(),
        (low, 0) => format!("[{low}]"),
        (low, high) => format!("[{low} {high}]"),
    };
    format!("{{unscaled:(big.Int){{neg:(bool)false abs:(big.nat){words}}} scale:(inf.Scale){scale}}}")
}

struct Suffix {
    base: u8,
    exponent: i32,
    format: &'static str,
}

impl Suffix {
    fn of(text: &str) -> Option<Self> {
        let decimal = |exponent| Some(Self { base: 10, exponent, format: "DecimalSI" });
        let binary = |exponent| Some(Self { base: 2, exponent, format: "BinarySI" });
        match text {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            _ => {
                let exponent = text.strip_prefix(['e', 'E'])?.parse().ok()?;
                Some(Self { base: 10, exponent, format: "DecimalExponent" })
            }
        }
    }
}

struct Parts<'a> {
    is_negative: bool,
    /// Without leading zeros, but never empty.
    whole: &'a str,
    fraction: &'a str,
    suffix: Suffix,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let length = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(length);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') {
            return None;
        }
        let whole = Some(whole.trim_start_matches('0')).filter(|whole| !whole.is_empty()).unwrap_or("0");
        Some(Self { is_negative: text.starts_with('-'), whole, fraction, suffix: Suffix::of(suffix)? })
    }

    /// A number of at most 18 digits, and whether the text is its canonical form.
    fn small(&self) -> Option<(Number, bool)> {
        let digits = format!("{}{}", self.whole, self.fraction);
        let (length, exponent) = (i32::try_from(digits.len()).ok()?, self.suffix.exponent);
        let value: i64 = digits.parse().ok()?;
        let signed = |value: i64| if self.is_negative { -value } else { value };
        if self.suffix.base == 2 {
            let is_small = self.fraction.is_empty() && 15 - length - exponent * 3 / 10 > 0;
            let bytes = value.checked_mul(1_i64.checked_shl(exponent.unsigned_abs())?)?;
            let number = Number::Small { value: signed(bytes), scale: 0 };
            return is_small.then_some((number, value & 7 != 0));
        }
        let scale = exponent.checked_sub(i32::try_from(self.fraction.len()).ok()?)?;
        let is_canonical = scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0');
        let number = Number::Small { value: signed(value), scale };
        (length <= 18 && scale >= -NANO).then_some((number, is_canonical))
    }

    /// Rounded up to billionths, and capped at 63 bits where it has a binary suffix.
    fn large(&self) -> Option<Quantity> {
        if self.is_negative {
            return None;
        }
        let mut unscaled: u128 = format!("{}{}", self.whole, self.fraction).parse().ok()?;
        let mut scale = i32::try_from(self.fraction.len()).ok()?;
        let mut format = self.suffix.format;
        if self.suffix.base == 10 {
            scale = scale.checked_sub(self.suffix.exponent)?;
        } else {
            unscaled = unscaled.checked_mul(1 << self.suffix.exponent)?;
        }
        if unscaled > 0 {
            unscaled = rescaled(unscaled, scale, NANO)?;
            scale = NANO;
        }
        if self.suffix.base == 2 {
            let one = 10_u128.checked_pow(u32::try_from(scale).ok()?)?;
            if unscaled > MAX_BINARY.checked_mul(one)? {
                (unscaled, scale) = (MAX_BINARY, 0);
            }
            if unscaled > 0 && unscaled < one {
                format = "DecimalSI";
            }
        }
        Some(Quantity { number: Number::Large { unscaled, scale }, format, text: String::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> String {
        let text = Quantity::parse(text).unwrap().print();
        let types =
            ["(int64)", "(resource.Scale)", "(resource.Format)", "(resource.int64Amount)", "(string)"];
        let text = types.iter().fold(text, |text, kind| text.replace(kind, ""));
        text.replace("d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} ", "")
    }

    // By the rules of ParseQuantity of Kubernetes 1.36.
    #[test]
    fn quantities_keep_their_text_where_it_is_canonical() {
        assert_eq!(printed("250m"), "{i:{value:250 scale:-3} s:250m Format:DecimalSI}");
        assert_eq!(printed("1"), "{i:{value:1 scale:0} s:1 Format:DecimalSI}");
        assert_eq!(printed("0.5"), "{i:{value:5 scale:-1} s: Format:DecimalSI}");
        assert_eq!(printed("1000m"), "{i:{value:1000 scale:-3} s: Format:DecimalSI}");
        assert_eq!(printed("100Mi"), "{i:{value:104857600 scale:0} s:100Mi Format:BinarySI}");
        assert_eq!(printed("128Mi"), "{i:{value:134217728 scale:0} s: Format:BinarySI}");
        assert_eq!(printed("2G"), "{i:{value:2 scale:9} s:2G Format:DecimalSI}");
        assert_eq!(printed("0"), "{i:{value:0 scale:0} s:0 Format:DecimalSI}");
        assert_eq!(printed("1e3"), "{i:{value:1 scale:3} s:1e3 Format:DecimalExponent}");
        assert_eq!(printed("100u"), "{i:{value:100 scale:-6} s:100u Format:DecimalSI}");
        for unknown in ["x", "1.2.3", "1Xi", "-1.5Gi", "1e99", "1e999999999999"] {
            assert_eq!(
                Quantity::parse(unknown).map(|q| q.number).filter(Number::is_large),
                None,
                "{unknown}"
            );
        }
    }

    impl Number {
        fn is_large(&self) -> bool {
            matches!(self, Self::Large { .. })
        }
    }

    #[test]
    fn quantities_in_lists_of_resources_are_rounded_up_to_milli() {
        let rounded = |text: &str| {
            let mut quantity = Quantity::parse(text).unwrap();
            quantity.round_up_to_milli().unwrap();
            (quantity.number, quantity.text)
        };
        let small = |value, scale| Number::Small { value, scale };
        assert_eq!(rounded("1n"), (small(1, -3), String::new()));
        assert_eq!(rounded("0.1234567"), (small(124, -3), String::new()));
        assert_eq!(rounded("250m"), (small(250, -3), "250m".to_owned()));
        let large = Number::Large { unscaled: 1_610_612_736_000, scale: 3 };
        assert_eq!(rounded("1.5Gi"), (large, String::new()));
    }
}
