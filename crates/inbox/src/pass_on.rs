//! For stores in front of another store, in a field `store`: the methods that only pass on.

/// Passes these methods on to `self.store`.
#[doc(hidden)]
#[macro_export]
macro_rules! __pass_on_to_store {
    ($($name:ident($command:ty) -> $answer:ty;)*) => {
        $(fn $name<'a>(&'a self, command: &'a $command) -> onlyonce_core::store::StoreFuture<'a, $answer> {
            self.store.$name(command)
        })*
    };
}

/// Passes everything on that is neither a claim nor a renewal, a completion or a release.
#[doc(hidden)]
#[macro_export]
macro_rules! __pass_on_the_rest_to_store {
    () => {
        $crate::__pass_on_to_store! {
            abandon(onlyonce_core::transition::Abandon) -> onlyonce_core::transition::AbandonAnswer;
            record_step(onlyonce_core::transition::RecordStep) -> onlyonce_core::transition::StepAnswer;
            resolve(onlyonce_core::transition::Resolve) -> onlyonce_core::transition::ResolveAnswer;
            erase(onlyonce_core::transition::Erase) -> onlyonce_core::transition::EraseAnswer;
            lookup(onlyonce_core::RecordId) -> Option<onlyonce_core::Record>;
            list(onlyonce_core::store::Listing) -> onlyonce_core::store::Page;
            watch(onlyonce_core::RecordId) -> onlyonce_core::store::Watch;
            secret(onlyonce_core::Secret) -> onlyonce_core::Secret;
            import([(onlyonce_core::RecordId, onlyonce_core::Record)]) -> onlyonce_core::store::Imported;
        }

        fn sweep(
            &self,
            budget: onlyonce_core::store::SweepBudget,
        ) -> onlyonce_core::store::StoreFuture<'_, onlyonce_core::store::Swept> {
            self.store.sweep(budget)
        }

        fn stats(&self) -> onlyonce_core::store::StoreFuture<'_, onlyonce_core::store::Stats> {
            self.store.stats()
        }

        fn durability(&self) -> onlyonce_core::store::Durability {
            self.store.durability()
        }
    };
}
