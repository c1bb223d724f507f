// Parts of a page that change are fetched again while the page is seen. Without this script the
// page shows the same after a reload.
"use strict";

(() => {
  const PAUSE = 2000;
  const PAUSE_MAX = 30000;

  // What changed is said once, and only in words: a region that is replaced as a whole would be
  // read aloud each time.
  const speak = (text) => {
    const spoken = document.getElementById("spoken");
    if (spoken && text && spoken.textContent !== text) {
      spoken.textContent = text;
    }
  };

  // A part in which somebody types or chooses stays as it is.
  const isInUse = (part) => {
    const active = document.activeElement;
    const types = active !== null && active.matches("input, select, textarea");
    return (types && part.contains(active)) || part.querySelector("details[open]") !== null;
  };

  const replace = (part, nodes) => {
    const active = document.activeElement;
    const focused = part.contains(active) ? active.id : "";
    part.replaceChildren(...nodes);
    if (focused) {
      document.getElementById(focused)?.focus({ preventScroll: true });
    }
  };

  const follow = (part) => {
    const usual = Number(part.dataset.pause) || PAUSE;
    let pause = usual;
    let shown = "";
    const again = () => setTimeout(look, pause);
    const look = async () => {
      if (document.hidden || isInUse(part)) {
        return again();
      }
      try {
        const answer = await fetch(part.dataset.live, {
          headers: { "X-Godwit-Part": "1" },
          credentials: "same-origin",
          redirect: "error",
        });
        if (answer.status === 401 || answer.status === 404) {
          speak("This page is not renewed any more. Load it again.");
          return;
        }
        if (!answer.ok) {
          throw new Error(String(answer.status));
        }
        const text = await answer.text();
        if (text !== shown && !isInUse(part)) {
          const fresh = new DOMParser().parseFromString(text, "text/html");
          const said = fresh.querySelector("[data-said]");
          replace(part, fresh.body.childNodes);
          shown = text;
          if (said) {
            speak(said.dataset.said);
          }
        }
        pause = usual;
        if (part.querySelector("[data-final]")) {
          return;
        }
      } catch {
        pause = Math.min(2 * pause, PAUSE_MAX);
      }
      again();
    };
    again();
  };

  document.querySelectorAll("[data-live]").forEach((part) => {
    if (!part.querySelector("[data-final]")) {
      follow(part);
    }
  });

  // A form is sent once.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") {
      return;
    }
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "1";
  });
  window.addEventListener("pageshow", () => {
    document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent);
  });
})();
