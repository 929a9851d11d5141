//! One request.
use crate::client_io::ClientSignals;
use crate::plane::Plane;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::sync::Arc;
pub(crate) struct Connection {
    pub(crate) plane: Arc<Plane>,
    pub(crate) signals: Arc<ClientSignals>,
}
pub(crate) async fn answer(_c: Arc<Connection>, _r: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = http::StatusCode::NOT_FOUND;
    Ok(response)
}
