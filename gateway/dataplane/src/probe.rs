//! Probes.
use crate::plane::Plane;
use std::sync::Arc;
pub(crate) async fn run(_plane: Arc<Plane>) {}
