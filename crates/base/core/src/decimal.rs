//! Whole numbers as Kubernetes compares them in label and toleration operators `Gt` and `Lt`.

/// A whole number, spelled in the one way there is.
pub fn decimal(text: &str) -> Option<i64> {
    text.parse().ok().filter(|number: &i64| number.to_string() == text)
}
