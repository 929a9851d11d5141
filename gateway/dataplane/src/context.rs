//! How long the context of a session is, as far as the bytes that pass by tell.
//!
//! The router moves a session off a crowded engine only when its context is short (`router_core::config::Spill`). The
//! engine's own count of prompt tokens would cost another pass over every answer; the length of the request is free, and
//! tells a short context from a long one: a token is about four bytes of English text, of JSON token ids, and of code.
//! Images make a body long, and their sessions stay, as they should.

const BYTES_PER_TOKEN: u64 = 4;

/// Tokens of the context after an execution: of a request of `body_bytes`, and of its output.
pub(crate) fn tokens(body_bytes: u64, output_tokens: Option<u64>) -> u32 {
    let tokens = (body_bytes / BYTES_PER_TOKEN).saturating_add(output_tokens.unwrap_or(0));
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_the_request_and_what_came_of_it() {
        assert_eq!(tokens(4_000, Some(24)), 1_024);
        assert_eq!(tokens(4_000, None), 1_000);
        assert_eq!(tokens(u64::MAX, Some(u64::MAX)), u32::MAX);
    }
}
