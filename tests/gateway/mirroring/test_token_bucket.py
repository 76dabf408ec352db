"""What copies may take: on average their share, whatever they cost."""

from gateway.mirroring.shadow import EngineBuckets, TokenBucket


def test_a_share_is_never_exceeded_for_long() -> None:
    bucket = TokenBucket(rate=2.0, burst=1.0)
    taken, now = 0.0, 0.0
    while now < 100:
        if bucket.open(now):
            bucket.take(3.0)
            taken += 3.0
        now += 0.01
    assert 2.0 * 100 - 3 <= taken <= 2.0 * 100 + 1 + 3


def test_each_engine_has_its_share_though_their_number_changes() -> None:
    buckets = EngineBuckets(0.1, burst_seconds=1.0)
    assert buckets.open("p", 0.0)
    buckets.take("p", 0.25, engines=1)  # 0.15 more than its one engine had saved up
    assert not buckets.open("p", 1.4)
    assert buckets.open("p", 2.5)
    buckets.take("p", 0.25, engines=5)  # 0.05 of each
    assert buckets.open("p", 2.5)


def test_each_package_has_a_share_of_its_own() -> None:
    buckets = EngineBuckets(0.1, burst_seconds=1.0)
    buckets.take("p", 1.0, engines=1)
    assert not buckets.open("p", 0.0)
    assert buckets.open("q", 0.0)
