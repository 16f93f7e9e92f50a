//! The commands and questions themselves, over one place.

use onlyonce_core::house::count_callers;
use onlyonce_core::record::StateKind;
use onlyonce_core::store::{Listing, PAGE_MAX, Stats, SweepBudget, Unreadable};
use onlyonce_core::transition::{Resolve, Verdict};
use onlyonce_core::{Fence, Record, RecordId, ScopeTag, Timestamp, hex};
use onlyonce_http::ProblemKind;
use onlyonce_http::rules::Span;
use serde_json::{Value, json};

use super::call::{Filter, Freeing, OfPrincipal, Resolution, Sought};
use super::outcome::GivenOutcome;
use super::verdict::{EraseResult, ResolveResult, VerdictName, actor, erased, resolved, verdict};
use super::{Place, shown};
use crate::claims::millis;
use crate::events::{Ring, Seen};
use crate::refusal::Refusal;
use crate::store::bounded;

/// The records on a page when nobody says how many.
const PAGE: usize = 50;
/// How many records of a principal one call erases: the next one goes on.
const ERASED_MAX: usize = 10_000;
/// Why a record that its own store cannot read was not erased.
const DAMAGED: &str = "its bytes are damaged in the store, which cannot tell what it would erase";
/// The name under which closed records that nobody could decide are listed.
const SEALED: &str = "sealed";

impl Place {
    pub(super) async fn list(&self, filter: &Filter) -> Result<Value, Refusal> {
        let only_sealed = filter.states.iter().any(|state| state == SEALED)
            && !filter.states.iter().any(|state| state == "completed");
        let listing = listing(filter)?;
        let page = bounded(self.store.list(&listing)).await?;
        let is_meant = |record: &Record| {
            !only_sealed || record.kind() != StateKind::Completed || shown::state(record) == SEALED
        };
        let records = page.records.iter().filter(|(_, record)| is_meant(record));
        let mut rows: Vec<_> = records.map(|(id, record)| (*id, shown::record(id, record))).collect();
        // Each in its place: what cannot be read is neither absent nor the end of the page.
        rows.extend(page.unreadable.iter().map(|found| (found.id, shown::unreadable(found))));
        rows.sort_by_key(|(id, _)| *id);
        let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
        Ok(json!({ "records": rows, "next": page.next.map(|id| id.to_string()) }))
    }

    /// The record, or why there is one that cannot be read.
    async fn lookup(&self, id: &RecordId) -> Result<Option<Result<Record, Unreadable>>, Refusal> {
        match bounded(self.store.lookup(id)).await {
            Ok(record) => Ok(record.map(Ok)),
            Err(error) if error.is_unreadable() => Ok(Some(Err(Unreadable::new(*id, &error)))),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn show(&self, id: &RecordId, seen: &[Seen], with_body: bool) -> Result<Value, Refusal> {
        Ok(match self.lookup(id).await?.ok_or_else(Refusal::absent)? {
            Ok(record) => shown::whole(id, &record, seen, with_body),
            Err(unreadable) => shown::unreadable_whole(&unreadable, seen),
        })
    }

    pub(super) async fn find(&self, sought: &Sought, namespace: Option<&str>) -> Result<Value, Refusal> {
        let id = self.naming.key(sought, namespace)?.record_id(&self.secret);
        let record = self.lookup(&id).await?.map(|found| shown::found(&id, &found));
        Ok(json!({ "id": id.to_string(), "record": record }))
    }

    pub(super) async fn stats(&self) -> Result<Value, Refusal> {
        Ok(stats(&bounded(Box::pin(count_callers(&*self.store))).await?))
    }

    pub(super) async fn purge(&self) -> Result<Value, Refusal> {
        let swept = bounded(self.store.sweep(SweepBudget::DEFAULT)).await?;
        Ok(json!({
            "removed": swept.removed, "dropped": swept.dropped, "made_unknown": swept.made_unknown, "more": swept.more,
        }))
    }

    pub(super) async fn resolve(
        &self,
        id: &RecordId,
        resolution: Resolution,
        who: Option<&str>,
        events: Option<&Ring>,
    ) -> Result<Value, Refusal> {
        let Resolution { fence, verdict: name, outcome, path, force } = resolution;
        let outcome = match (name, outcome) {
            (VerdictName::StillUnknown, _) => {
                return Err(Refusal::invalid("`verdict` is `executed` or `not-executed`"));
            }
            (VerdictName::Executed, given) => {
                Some(GivenOutcome::outcome(given, &self.naming, path.as_deref())?)
            }
            (VerdictName::NotExecuted, None) => None,
            (VerdictName::NotExecuted, Some(_)) => {
                return Err(Refusal::invalid("`outcome` is for `executed` only"));
            }
        };
        let verdict = verdict(name, outcome, force)?;
        self.say(id, fence, verdict, who, events).await
    }

    pub(super) async fn release(
        &self,
        id: &RecordId,
        freeing: Freeing,
        who: Option<&str>,
        events: Option<&Ring>,
    ) -> Result<Value, Refusal> {
        let verdict = Verdict::NotExecuted { force: freeing.force.unwrap_or(false) };
        self.say(id, freeing.fence, verdict, who, events).await
    }

    async fn say(
        &self,
        id: &RecordId,
        fence: u64,
        verdict: Verdict,
        who: Option<&str>,
        events: Option<&Ring>,
    ) -> Result<Value, Refusal> {
        let fence = Fence::new(fence).ok_or_else(|| Refusal::invalid("`fence` is 2^53 or more"))?;
        let actor = actor(Some(who.unwrap_or("dashboard").to_owned()))?;
        let name = if matches!(verdict, Verdict::Executed(_)) { "resolved" } else { "released" };
        let resolve = Resolve { id: *id, fence, verdict, actor };
        let answer = resolved(self.store.as_ref(), &self.name, &resolve).await?;
        let answer = match answer {
            ResolveResult::Resolved => {
                if let Some(events) = events {
                    events.command(*id, fence, name);
                }
                "resolved"
            }
            ResolveResult::Already => "already",
            ResolveResult::Absent => return Err(Refusal::absent()),
            other => return Err(in_the_way(&other)),
        };
        // It is said either way: that the record cannot be read now is no refusal.
        let record = self.lookup(id).await.ok().flatten().map(|found| shown::found(id, &found));
        Ok(json!({ "answer": answer, "record": record }))
    }

    pub(super) async fn erase(&self, id: RecordId, events: Option<&Ring>) -> Result<Value, Refusal> {
        let conflict = |answer: &'static str, detail: &str| {
            Refusal::new(ProblemKind::StateConflict, detail).with("answer", answer)
        };
        match self.erase_one(id, events).await? {
            Some(EraseResult::Erased) => Ok(json!({ "erased": true })),
            Some(EraseResult::Absent) => Err(Refusal::absent()),
            Some(EraseResult::InFlight) => {
                Err(conflict("in-flight", "somebody works on it: erase it when that has ended"))
            }
            None => Err(conflict("unreadable", DAMAGED)),
        }
    }

    /// Erases a record. `None` when the store itself cannot make out what it is: a lost key of the encryption is no reason.
    async fn erase_one(&self, id: RecordId, events: Option<&Ring>) -> Result<Option<EraseResult>, Refusal> {
        let answer = match erased(self.store.as_ref(), &self.name, id).await {
            Err(refusal) if refusal.is_unreadable() => return Ok(None),
            answer => answer?,
        };
        if let (EraseResult::Erased, Some(events)) = (&answer, events) {
            events.command(id, Fence::default(), "erased");
        }
        Ok(Some(answer))
    }

    /// Whose records are meant, without saying who that is: as their ids end.
    pub(super) fn scopes_told(&self, of: &OfPrincipal, namespace: Option<&str>) -> Result<String, Refusal> {
        let scopes = self.naming.scopes(&of.principal, namespace)?;
        let tags: Vec<_> = scopes.iter().map(|scope| shown::scope(scope.tag(&self.secret))).collect();
        Ok(format!("scopes {}", tags.join(" ")))
    }

    /// Erases records of one principal, page by page.
    pub(super) async fn erase_all(
        &self,
        of: &OfPrincipal,
        namespace: Option<&str>,
        events: Option<&Ring>,
    ) -> Result<Value, Refusal> {
        let scopes = self.naming.scopes(&of.principal, namespace)?;
        let tags: Vec<_> = scopes.iter().map(|scope| scope.tag(&self.secret)).collect();
        let mut told = Told::default();
        // The place to go on from: which scope, and behind which of its ids.
        let (mut at, mut after) = resumed(of.after.as_deref(), &tags)?;
        while let Some(tag) = tags.get(at) {
            let listing = Listing { scope: Some(*tag), after, limit: PAGE_MAX, ..Listing::default() };
            let page = bounded(self.store.list(&listing)).await?;
            let readable = page.records.iter().map(|(id, _)| *id);
            for id in readable.chain(page.unreadable.iter().map(|found| found.id)) {
                match self.erase_one(id, events).await? {
                    Some(EraseResult::Erased) => told.erased += 1,
                    Some(EraseResult::InFlight) => told.left += 1,
                    Some(EraseResult::Absent) => {}
                    None => told.unreadable += 1,
                }
            }
            after = page.next;
            at += usize::from(after.is_none());
            if told.all() >= ERASED_MAX
                && let Some(tag) = tags.get(at)
            {
                let after = after.map(|id| id.to_string()).unwrap_or_default();
                return Ok(told.to_json(Some(&format!("{}:{after}", shown::scope(*tag)))));
            }
        }
        Ok(told.to_json(None))
    }
}

/// What became of the records of one principal.
#[derive(Default)]
struct Told {
    erased: usize,
    /// Somebody works on them.
    left: usize,
    /// They are damaged, and so is what is left of them.
    unreadable: usize,
}

impl Told {
    const fn all(&self) -> usize {
        self.erased + self.left + self.unreadable
    }

    fn to_json(&self, next: Option<&str>) -> Value {
        json!({ "erased": self.erased, "left": self.left, "unreadable": self.unreadable, "next": next })
    }
}

/// Reads back what an answer said under `next`: a scope by its tag, because rules may have changed their order since, and an
/// id.
fn resumed(text: Option<&str>, tags: &[ScopeTag]) -> Result<(usize, Option<RecordId>), Refusal> {
    let wrong = || Refusal::invalid("`after` is not the `next` of an answer before");
    let Some((tag, id)) = text.map(|text| text.split_once(':').ok_or_else(wrong)).transpose()? else {
        return Ok((0, None));
    };
    let at = tags.iter().position(|known| shown::scope(*known) == tag).ok_or_else(|| {
        Refusal::invalid(
            "`after` is of a scope that is none of this principal's any more: begin again without it",
        )
    })?;
    let id = if id.is_empty() { None } else { Some(id.parse().map_err(|_| wrong())?) };
    Ok((at, id))
}

pub(crate) fn stats(stats: &Stats) -> Value {
    json!({
        "in_flight": stats.in_flight, "completed": stats.completed, "released": stats.released,
        "unknown": stats.unknown, "unreadable": stats.unreadable, "bytes": stats.bytes, "oldest_expired_ms": stats.oldest_expired.map(millis),
    })
}

fn listing(filter: &Filter) -> Result<Listing, Refusal> {
    let mut states = filter.states.iter().map(|name| state(name)).collect::<Result<Vec<_>, _>>()?;
    states.dedup();
    let older_than = filter
        .older_than
        .as_deref()
        .map(|text| text.parse::<Span>().map_err(|error| Refusal::invalid(format!("`older_than`: {error}"))));
    let created_before: Option<Timestamp> = older_than.transpose()?.map(|span| shown::now() - span.get());
    let prefix = match &filter.prefix {
        Some(prefix) if prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Some(prefix.to_ascii_lowercase())
        }
        Some(_) => return Err(Refusal::invalid("`prefix` has hexadecimal digits only")),
        None => None,
    };
    let after = filter.after.as_deref().map(|text| {
        text.parse().map_err(|_| Refusal::invalid("`after` is no id: it has 64 hexadecimal digits"))
    });
    Ok(Listing {
        states,
        scope: filter.scope.as_deref().map(scope_tag).transpose()?,
        prefix,
        created_before,
        after: after.transpose()?,
        limit: filter.limit.filter(|limit| *limit > 0).unwrap_or(PAGE).min(PAGE_MAX),
    })
}

fn state(name: &str) -> Result<StateKind, Refusal> {
    let found = StateKind::ALL.into_iter().find(|kind| kind.to_string() == name);
    found.or((name == SEALED).then_some(StateKind::Completed)).ok_or_else(|| {
        let all = "in-flight, completed, released, unknown and sealed";
        Refusal::invalid(format!("`state` is none of {all}"))
    })
}

/// The tag that ids of a scope end in.
fn scope_tag(digits: &str) -> Result<ScopeTag, Refusal> {
    let mut id = [0; 32];
    match hex::decode(&digits.to_ascii_lowercase()) {
        Some(tag) if tag.len() == 8 => id[24..].copy_from_slice(&tag),
        _ => return Err(Refusal::invalid("`scope` has 16 hexadecimal digits")),
    }
    Ok(ScopeTag::of(&RecordId::from_bytes(id)))
}

/// Why a verdict changed nothing.
fn in_the_way(answer: &ResolveResult) -> Refusal {
    let conflict = |answer: &'static str, detail: String| {
        Refusal::new(ProblemKind::StateConflict, detail).with("answer", answer)
    };
    match answer {
        ResolveResult::NotUnknown { state } => {
            let state = serde_json::to_value(state).unwrap_or_default();
            let name = state.as_str().unwrap_or_default().to_owned();
            let detail = format!("there is nothing to resolve: the record is {name}");
            conflict("not-unknown", detail).with("state", name)
        }
        ResolveResult::Stale { fence } => {
            let detail = format!("there was another attempt meanwhile: the record is at fence {fence}");
            conflict("stale", detail).with("fence", *fence)
        }
        ResolveResult::TooEarly { left_ms } => {
            let detail = format!(
                "the attempt may still be running: \"not executed\" cannot be known for another {left_ms} ms"
            );
            conflict("too-early", detail).with("left_ms", *left_ms)
        }
        _ => {
            let detail =
                "the owner reported an outcome after the record was closed: it was executed".to_owned();
            conflict("contradicted", detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erasure_goes_on_in_its_scope_whatever_the_order_of_the_rules_is_by_then() {
        let tag = |byte: u8| ScopeTag::of(&RecordId::from_bytes([byte; 32]));
        let id = RecordId::from_bytes([9; 32]);
        let next = format!("{}:{id}", shown::scope(tag(2)));
        let at = |text: &str, tags: &[ScopeTag]| resumed(Some(text), tags).ok();
        assert_eq!(at(&next, &[tag(1), tag(2)]), Some((1, Some(id))));
        assert_eq!(at(&next, &[tag(2), tag(1)]), Some((0, Some(id))), "a reload has changed the order");
        assert_eq!(at(&format!("{}:", shown::scope(tag(1))), &[tag(2), tag(1)]), Some((1, None)));
        assert_eq!(at(&next, &[tag(1), tag(3)]), None, "its scope is gone: nothing is skipped in silence");
        assert_eq!(at("1:", &[tag(1), tag(2)]), None);
        assert_eq!(resumed(None, &[tag(1)]).ok(), Some((0, None)));
    }
}
