//! Propagates the trace context to the runtime with each call.

use std::sync::Arc;

use ports::TraceContext;
use ports::trace::TRACEPARENT;
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// Without a context, if tracing is off, nothing is added.
#[derive(Clone, Debug, Default)]
pub(crate) struct PropagateTrace(pub(crate) Option<Arc<dyn TraceContext>>);

impl Interceptor for PropagateTrace {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let parent = self.0.as_ref().and_then(|context| context.traceparent()?.parse().ok());
        if let Some(parent) = parent {
            request.metadata_mut().insert(TRACEPARENT, parent);
        }
        Ok(request)
    }
}
