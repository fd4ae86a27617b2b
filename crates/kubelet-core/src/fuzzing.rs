//! What fuzzers (`scripts/fuzz`) throw at the readers of texts from outside: each function takes any bytes, and panics
//! where a promise is broken. What was found once lies in `fuzz/corpus`, and is tried again with every test run.

use crate::pods::{dns, env};

/// A name, which is also that of a corpus, and what is done with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] =
    &[("env_expansion", env_expansion), ("env_file", env_file), ("resolv_conf", resolv_conf)];

/// The first half of the lines are variables, the rest words of a command: both stay within what a new process can take.
pub fn env_expansion(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lines: Vec<&str> = text.split('\n').collect();
    let (variables, words) = lines.split_at(lines.len() / 2);
    let variables = variables.iter().map(|line| line.split_once('=').unwrap_or((line, "")));
    let variables: Vec<_> = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    if let Ok(expanded) = env::expand_all(&words, &variables) {
        assert_eq!(expanded.len(), words.len());
        let is_same = |(word, expanded): (&String, &String)| word.contains('$') || word == expanded;
        assert!(words.iter().zip(&expanded).all(is_same), "without a reference nothing changes");
        assert!(
            expanded.iter().map(String::len).sum::<usize>() <= 2 << 20,
            "more than a new process can take"
        );
    }
    for word in &words {
        if let Ok(path) = env::expand_sub_path(word, &env::values_by_name(&variables)) {
            assert!(path.len() < 4096, "longer than PATH_MAX");
        }
    }
}

/// A file of variables is refused with its line, or each value stands in it as it is.
pub fn env_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match env::read_env_file(&text) {
        Ok(variables) => {
            assert!(variables.values().all(|value| text.contains(&format!("'{value}'"))));
            assert!(variables.keys().all(|name| !name.is_empty() && !name.contains('\n')));
        }
        Err(error) => assert!(error.to_string().contains("line"), "{error}"),
    }
}

/// A resolv.conf is refused with its line, or has no more in it than the text had words.
pub fn resolv_conf(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let words = text.split_whitespace().count();
    match dns::parse_resolv_conf(&text) {
        Ok(dns) => assert!(dns.servers.len() + dns.searches.len() + dns.options.len() <= words),
        Err(error) => assert!(error.line <= text.lines().count()),
    }
    let _ = dns::check_resolv_conf("/etc/resolv.conf", &text, "cluster.local");
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        fixtures::run_fuzz_corpus(super::TARGETS);
    }
}
