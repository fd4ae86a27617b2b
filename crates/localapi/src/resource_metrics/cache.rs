//! The last answer of the kubelet, kept for a second: clients that poll, and clients that come together, cost one question.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Measurements;

const KEPT_FOR: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Kept {
    until: Instant,
    /// An error is kept, too, or each client that waits for a kubelet would wait after the one before.
    result: Result<Arc<Measurements>, String>,
}

#[derive(Debug, Default)]
pub(crate) struct UsageCache(Mutex<Option<Kept>>);

impl UsageCache {
    /// The kept answer, or that of `ask`. At most one question is open at a time.
    pub(crate) async fn get(
        &self,
        ask: impl Future<Output = Result<Bytes, String>>,
    ) -> Result<Arc<Measurements>, String> {
        let mut kept = self.0.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| Instant::now() < kept.until) {
            return kept.result.clone();
        }
        let before = kept.as_ref().and_then(|kept| kept.result.clone().ok());
        let answer = ask.await;
        let result = answer.and_then(|text| Measurements::parse(&text, before.as_deref()).map(Arc::new));
        *kept = Some(Kept { until: Instant::now() + KEPT_FOR, result: result.clone() });
        result
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const ANSWER: &str = r#"{"node": {"nodeName": "n"}, "pods": []}"#;

    #[tokio::test(start_paused = true)]
    async fn answer_of_the_kubelet_is_kept_for_a_second_an_error_too() {
        let (cache, asked) = (UsageCache::default(), &Cell::new(0));
        let ask = |answer: Result<&'static str, &'static str>| {
            cache.get(async move {
                asked.set(asked.get() + 1);
                answer.map(|text| Bytes::from_static(text.as_bytes())).map_err(str::to_owned)
            })
        };
        let refused = ask(Err("refused")).await;
        assert_eq!(refused, Err("refused".to_owned()));
        assert_eq!(ask(Ok(ANSWER)).await, refused);
        tokio::time::sleep(KEPT_FOR).await;
        let answered = ask(Ok(ANSWER)).await;
        assert!(answered.is_ok());
        assert_eq!(ask(Err("refused")).await, answered);
        assert_eq!(asked.get(), 2);
        tokio::time::sleep(KEPT_FOR).await;
        let unknown = ask(Ok("{}")).await.unwrap_err();
        assert!(unknown.starts_with("unknown answer: missing field `node`"), "{unknown}");
    }
}
