// Asks for the document again and again, while somebody looks. The last one stays when the next
// can't be had. Never more than one question at a time.

const LONGEST_SECONDS = 30;
const TIMEOUT_SECONDS = 15;

export class Live {
  /** `address()` says what to ask for; `got(view)` and `changed()` are called as things happen. */
  constructor(address, got, changed) {
    this.state = "loading"; // live, lost, held
    this.at = null; // when the last document came, milliseconds
    this.why = "";
    this.address = address;
    this.got = got;
    this.changed = changed;
    this.failures = 0;
    this.timer = null;
    this.asking = null;
    this.held = false;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.now();
    });
  }

  /** Asks at once; an earlier question is forgotten. */
  now() {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.ask();
  }

  /** Stands still, or goes on. */
  hold(held) {
    this.held = held;
    if (held) {
      clearTimeout(this.timer);
      this.asking?.abort();
      this.state = "held";
      this.changed();
    } else {
      this.now();
    }
  }

  async ask() {
    const asking = new AbortController();
    this.asking = asking;
    const late = setTimeout(() => asking.abort("late"), TIMEOUT_SECONDS * 1000);
    let pause;
    try {
      const answer = await fetch(this.address(), { signal: asking.signal, cache: "no-store" });
      if (!answer.ok) throw new Error(`the statistics service answered ${answer.status}`);
      const view = await answer.json();
      if (asking !== this.asking) return;
      this.failures = 0;
      this.at = Date.now();
      this.state = "live";
      this.got(view);
      pause = view.refresh_seconds;
    } catch (error) {
      if (asking !== this.asking || this.held) return; // another question took its place
      this.failures += 1;
      this.state = "lost";
      this.why = error instanceof TypeError || asking.signal.aborted
        ? "the statistics service does not answer" : error.message;
      pause = Math.min(LONGEST_SECONDS, 2 ** this.failures);
    } finally {
      clearTimeout(late);
    }
    this.changed();
    this.timer = setTimeout(() => {
      if (!document.hidden && !this.held) this.ask(); // else when somebody looks again
    }, pause * 1000);
  }
}
