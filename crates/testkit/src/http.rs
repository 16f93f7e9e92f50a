//! The HTTP suite: what `Idempotency-Key` means on the wire, as tests that any door can run.
//!
//! A clause is an `async fn` over an [`HttpFixture`]. Its name begins with what it shows: `hN_` item N of the checklist of
//! draft-ietf-httpapi-idempotency-key-header, `aN_` choice N that the draft leaves open, `d_` what the design adds. The
//! clauses talk HTTP to a [`Door`] and look at the [`Application`] behind it; they know nothing of what is in between.

mod application;
mod client;
mod served;
mod stage;

pub mod clauses;

pub use application::{Application, Given, Seen, Turn};
pub use client::{Ask, Got};
pub use served::Served;
pub use stage::{Door, HttpFixture, Setup, Stage};

/// Hands the names of all clauses to a macro.
#[macro_export]
macro_rules! for_each_http_clause {
    ([$($then:tt)*] $($args:tt)*) => {
        $($then)*! { $($args)*;
            h1_a_quoted_key_is_the_text_between_the_quotes,
            h2_only_printable_ascii_and_two_escapes_are_accepted,
            h3_strict_routes_take_only_strings,
            h4_parameters_do_not_change_the_key,
            h5_two_header_lines_are_refused,
            h6_a_broken_key_never_runs_unprotected,
            h7_empty_and_overlong_keys_are_refused,
            h14_answers_are_kept_for_their_retention_and_no_longer,
            h16_excluded_members_do_not_count_and_all_others_do,
            h16_only_included_members_count,
            h16_chosen_headers_count,
            h27_a_first_request_is_processed_once,
            h28_a_retry_gets_the_same_answer,
            h28_a_stored_error_is_replayed_too,
            h29_of_many_at_once_one_runs_and_the_others_are_told,
            h30_a_missing_key_is_refused_where_one_is_required,
            h31_another_payload_under_the_same_key_is_refused,
            h32_problems_are_problem_json,
            h33_a_mismatch_stays_a_mismatch_and_the_record_stays,
            h36_hostile_keys_do_no_harm,
            h37_two_principals_never_meet,
            h38_a_guessed_key_is_worth_nothing,
            h39_the_header_name_is_the_registered_one_in_any_case,
            a1_a_mismatch_is_told_before_a_conflict,
            a2_standard_keeps_answers_and_runs_errors_again,
            a2_ietf_keeps_errors_too,
            a2_stripe_keeps_what_was_executed,
            a2_rules_change_the_verdict_on_a_status,
            a3_method_and_uri_are_part_of_the_request,
            a3_scope_path_makes_a_path_part_of_the_key,
            a4_an_expired_key_runs_again,
            a4_an_old_uuidv7_is_refused_where_asked_for,
            a5_first_answers_and_replays_are_marked,
            a6_a_replay_is_byte_exact,
            a6_what_belongs_to_the_hop_or_the_caller_is_not_replayed,
            a6_cookies_are_replayed_only_on_request,
            a7_put_and_delete_are_protected_where_asked_for,
            a8_a_key_on_a_safe_method_passes_through,
            a9_waiters_get_the_answer_of_the_one_that_runs,
            a9_prefer_wait_changes_the_patience,
            a11_the_same_payload_under_another_key_runs,
            a12_errors_of_gateways_leave_the_outcome_unknown,
            d_a_vanished_client_loses_nothing,
            d_no_answer_leaves_the_outcome_unknown,
            d_a_cut_off_answer_is_never_kept,
            d_an_answer_too_large_streams_through_and_is_not_kept,
            d_an_endless_answer_streams_through_and_is_not_kept,
            d_event_streams_start_at_once_and_are_not_kept,
            d_the_application_can_steer,
            d_what_is_committed_stays_so_although_its_answer_breaks_off,
            d_status_only_keeps_the_status,
            d_redacted_members_and_fields_are_not_replayed,
            d_a_body_that_cannot_be_redacted_is_not_kept,
            d_replays_can_be_200,
            d_the_application_sees_fence_and_attempt_of_ours_only,
            d_a_refused_request_may_be_corrected,
            d_a_request_too_large_is_refused_before_it_runs,
            d_requests_without_a_key_pass,
            d_the_key_may_be_in_another_header,
            d_the_key_may_be_in_the_body,
            d_multipart_is_compared_by_part,
            d_json_is_compared_by_value,
            d_cookies_without_a_credential_are_refused,
            d_no_credential_at_all_shares_one_scope,
            d_principals_come_from_where_the_rule_says,
            d_a_store_that_is_away_means_no_work,
            d_an_open_route_runs_unprotected_and_says_so,
            d_an_unrecorded_answer_says_so_and_is_recorded_later,
            d_shadow_mode_enforces_nothing,
            d_quotas_refuse_before_they_run,
            d_sealed_outcomes_are_final,
            d_rerun_runs_again_after_an_unknown_outcome,
            d_stripe_speaks_as_stripe_does,
            d_ietf_requires_quoted_keys,
        }
    };
}

/// Makes one named `#[test]` for every clause, on the given [`HttpFixture`].
#[macro_export]
macro_rules! http_suite {
    ($fixture:expr) => { $crate::for_each_http_clause!([$crate::__http_suite] $fixture); };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __http_suite {
    ($fixture:expr; $($clause:ident),* $(,)?) => {
        $(
            #[test]
            fn $clause() {
                $crate::run(async { $crate::http::clauses::$clause(&$fixture).await });
            }
        )*
    };
}
