//! The queue of messages to one worker, which is empty nearly always.
//!
//! Owns: the messages that wait, and at most so many. Like `tokio::sync::mpsc`, which has space for 32 messages and more than half a
//! kilobyte besides for each pod of the node.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
struct Shared<T> {
    queue: Mutex<Queue<T>>,
    arrived: Notify,
    /// There is space again, or the worker has ended.
    freed: Notify,
}

#[derive(Debug)]
struct Queue<T> {
    messages: VecDeque<T>,
    capacity: usize,
    is_closed: bool,
}

/// Sends messages; clones share the queue.
#[derive(Debug)]
pub(crate) struct Outlet<T>(Arc<Shared<T>>);

/// Receives messages. Dropped, it closes the queue.
#[derive(Debug)]
pub(crate) struct Inbox<T>(Arc<Shared<T>>);

impl<T> Inbox<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let queue = Queue { messages: VecDeque::new(), capacity, is_closed: false };
        Self(Arc::new(Shared { queue: Mutex::new(queue), arrived: Notify::new(), freed: Notify::new() }))
    }

    pub(crate) fn outlet(&self) -> Outlet<T> {
        Outlet(self.0.clone())
    }

    /// Waits for a message. Cancel safe.
    pub(crate) async fn receive(&self) -> T {
        loop {
            if let Some(message) = self.try_receive() {
                return message;
            }
            // One that arrived before this call is remembered.
            self.0.arrived.notified().await;
        }
    }

    pub(crate) fn try_receive(&self) -> Option<T> {
        let mut queue = self.0.queue.lock();
        let message = queue.messages.pop_front();
        if queue.messages.is_empty() {
            queue.messages.shrink_to_fit();
        }
        drop(queue);
        if message.is_some() {
            self.0.freed.notify_one();
        }
        message
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.is_closed = true;
        queue.messages.clear();
        drop(queue);
        self.0.freed.notify_waiters();
    }
}

impl<T> Outlet<T> {
    /// Waits while the queue is full. A message to a worker that has ended is dropped.
    pub(crate) async fn send(&self, message: T) {
        loop {
            let freed = self.0.freed.notified();
            {
                let mut queue = self.0.queue.lock();
                if queue.is_closed {
                    return;
                }
                if queue.messages.len() < queue.capacity {
                    queue.messages.push_back(message);
                    break;
                }
            }
            freed.await;
        }
        self.0.arrived.notify_one();
    }
}

impl<T> Clone for Outlet<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn messages_arrive_in_their_order_and_senders_wait_while_it_is_full() {
        let inbox = Inbox::new(2);
        let mut senders = JoinSet::new();
        for sender in 0..3 {
            let outlet = inbox.outlet();
            senders.spawn(async move {
                for message in 0..100 {
                    outlet.send((sender, message)).await;
                }
            });
        }
        let mut next = [0; 3];
        for _ in 0..300 {
            let (sender, message): (usize, i32) = inbox.receive().await;
            assert_eq!(message, next[sender]);
            next[sender] += 1;
            assert!(inbox.0.queue.lock().messages.len() <= 2);
        }
        senders.join_all().await;
        assert_eq!((next, inbox.try_receive()), ([100; 3], None));
    }

    #[tokio::test(start_paused = true)]
    async fn receiver_waits_for_a_message_and_a_cancelled_wait_loses_none() {
        let inbox = Inbox::new(2);
        let outlet = inbox.outlet();
        let minute = Duration::from_secs(60);
        assert!(tokio::time::timeout(minute, inbox.receive()).await.is_err());
        outlet.send(1).await;
        outlet.send(2).await;
        assert_eq!((inbox.receive().await, inbox.receive().await), (1, 2));
        assert!(tokio::time::timeout(minute, inbox.receive()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn senders_of_a_closed_queue_do_not_wait() {
        let inbox = Inbox::new(1);
        let outlet = inbox.outlet();
        outlet.send(1).await;
        let close = async {
            tokio::task::yield_now().await;
            drop(inbox);
        };
        tokio::join!(outlet.send(2), close);
        outlet.send(3).await;
        assert!(outlet.0.queue.lock().messages.is_empty());
    }
}
