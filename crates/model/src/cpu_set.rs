//! Sets of processors, as the kernel and the configuration write them: `0-3,8`.

use std::fmt;
use std::str::FromStr;

/// Linux is built for at most 8192 processors.
pub const MAX_CPUS: u32 = 8192;

const BITS: u32 = u64::BITS;

/// A set of small ids: of processors, or of the cores, packages and caches that they belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet {
    /// One bit for each id; the last word is never 0, so that equal sets have equal words.
    words: Vec<u64>,
}

/// Why a text is not a set of processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuSetError {
    /// Neither a number nor a range, or a number of more than [`MAX_CPUS`].
    NotAnId(String),
    /// The end of a range is before its start.
    Reversed(String),
}

impl fmt::Display for CpuSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnId(part) => write!(f, "{part:?} is not the number of a processor below {MAX_CPUS}"),
            Self::Reversed(range) => write!(f, "range {range:?} ends before it starts"),
        }
    }
}

impl std::error::Error for CpuSetError {}

impl CpuSet {
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Adds an id; one that no machine has is ignored.
    pub fn insert(&mut self, id: u32) {
        if id >= MAX_CPUS {
            return;
        }
        let word = (id / BITS) as usize;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (id % BITS);
    }

    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        self.words.get((id / BITS) as usize).is_some_and(|word| word & (1 << (id % BITS)) != 0)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The ids, smallest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        let ids = (0_u32..).step_by(BITS as usize).zip(&self.words);
        let ids: Vec<u32> = ids
            .flat_map(|(first, word)| {
                (0..BITS).filter(move |bit| word & (1 << bit) != 0).map(move |bit| first + bit)
            })
            .collect();
        ids.into_iter()
    }

    #[must_use]
    pub fn first(&self) -> Option<u32> {
        let (index, word) = self.words.iter().enumerate().find(|(_, word)| **word != 0)?;
        Some(u32::try_from(index).ok()? * BITS + word.trailing_zeros())
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() < other.words.len() { (other, self) } else { (self, other) };
        let mut words = long.words.clone();
        for (word, more) in words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        Self { words }
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::trimmed(self.words.iter().zip(&other.words).map(|(word, other)| word & other).collect())
    }

    /// How many ids both have.
    #[must_use]
    pub fn intersection_len(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).map(|(word, other)| (word & other).count_ones() as usize).sum()
    }

    /// The ids that `other` does not have.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        Self::trimmed(self.words.iter().zip(others).map(|(word, other)| word & !other).collect())
    }

    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(word, other)| word & other == 0)
    }

    fn trimmed(mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut set = Self::new();
        set.extend(ids);
        set
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        ids.into_iter().for_each(|id| self.insert(id));
    }
}

impl<const N: usize> From<[u32; N]> for CpuSet {
    fn from(ids: [u32; N]) -> Self {
        ids.into_iter().collect()
    }
}

/// `0-3,8`; nothing for the empty set.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = ids.next() {
            let mut last = first;
            while let Some(next) = ids.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    /// `0-3,8`, with spaces around numbers; nothing but spaces is the empty set.
    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let mut set = Self::new();
        if text.trim().is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (id(first)?, id(last)?);
            if first > last {
                return Err(CpuSetError::Reversed(part.trim().to_owned()));
            }
            set.extend(first..=last);
        }
        Ok(set)
    }
}

fn id(text: &str) -> Result<u32, CpuSetError> {
    let id = text.trim().parse().ok().filter(|id| *id < MAX_CPUS);
    id.ok_or_else(|| CpuSetError::NotAnId(crate::text::cut(text.trim(), 40).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn lists_of_the_kernel_are_read_and_written_in_their_shortest_form() {
        for (text, written, ids) in [
            ("", "", vec![]),
            (" \n", "", vec![]),
            ("5", "5", vec![5]),
            ("1,2,3,4,5", "1-5", vec![1, 2, 3, 4, 5]),
            ("1-5", "1-5", vec![1, 2, 3, 4, 5]),
            ("1-2,3-5", "1-5", vec![1, 2, 3, 4, 5]),
            ("5,4,3,2,1", "1-5", vec![1, 2, 3, 4, 5]),
            ("3-6,1-5", "1-6", vec![1, 2, 3, 4, 5, 6]),
            ("3-3,5-5", "3,5", vec![3, 5]),
            ("0-1, 63-65 ,8191", "0-1,63-65,8191", vec![0, 1, 63, 64, 65, 8191]),
        ] {
            let parsed = set(text);
            assert_eq!(parsed.to_string(), written);
            assert_eq!(parsed.iter().collect::<Vec<_>>(), ids);
            assert_eq!(parsed.len(), ids.len());
            assert_eq!(parsed.first(), ids.first().copied());
        }
    }

    #[test]
    fn other_texts_are_refused_and_named() {
        for text in [
            "nonnumeric",
            "non-numeric",
            "no,numbers",
            "0-a",
            "a-0",
            "0,a",
            "a,0",
            "1-2,a,3-5",
            "0,",
            "-1",
            "8192",
            "0-8192",
            "1--2",
        ] {
            assert!(matches!(text.parse::<CpuSet>(), Err(CpuSetError::NotAnId(_))), "{text}");
        }
        assert_eq!("0,5-3".parse::<CpuSet>(), Err(CpuSetError::Reversed("5-3".to_owned())));
        assert_eq!(
            "x".parse::<CpuSet>().unwrap_err().to_string(),
            "\"x\" is not the number of a processor below 8192"
        );
    }

    #[test]
    fn sets_are_combined_and_compared() {
        let (low, high) = (set("0-3,64"), set("3,200"));
        assert_eq!(low.union(&high), set("0-3,64,200"));
        assert_eq!(high.union(&low), set("0-3,64,200"));
        assert_eq!(low.intersection(&high), set("3"));
        assert_eq!((low.intersection_len(&high), high.intersection_len(&low)), (1, 1));
        assert_eq!(high.difference(&set("200")), set("3"), "no empty word stays at the end");
        assert_eq!(low.difference(&high), set("0-2,64"));
        assert!(set("1,2").is_subset(&low) && !high.is_subset(&low) && CpuSet::new().is_subset(&high));
        assert!(set("1,2").is_disjoint(&high) && !low.is_disjoint(&high));
        assert!(low.contains(64) && !low.contains(63) && !low.contains(100_000));
        assert!(low.difference(&low).is_empty());
    }
}
