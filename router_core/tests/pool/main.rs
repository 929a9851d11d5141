//! Tests of the pool through its public face only, with time moved by hand.

mod balance_cases;
mod fairness;
mod interleavings;
mod membership_cases;
mod model;
mod session_cases;
mod support;
