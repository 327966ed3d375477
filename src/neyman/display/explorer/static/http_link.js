// How the page reaches the library: over HTTP, with its settings in the address.
"use strict";
const root = document;
const link = (() => {
  const me = Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16)).join("");
  const json = async (path) => (await fetch(path)).json();
  return {
    opening: () => json("/opening"),
    checks: () => json("/checks"),
    // The status of HTTP, and what the server says.
    ask: async (number, question, signal) => {
      const body = JSON.stringify({ page: me, number, question });
      const reply = await fetch("/answer", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
      return [reply.status, reply.ok ? await reply.json() : { problem: "The explorer refused to answer." }];
    },
    // Report every few seconds whether the server is there: its status, or 0.
    watch: (reached) => setInterval(async () => {
      if (document.hidden) return;
      try {
        reached((await fetch("/alive")).status);
      } catch {
        reached(0);
      }
    }, 4000),
    gone: "The explorer has stopped. This page shows its last answer.",
    again: "The address of this page holds your settings. Run neyman explore again, open the address that it prints, and append the part of this address from # on.",
    // The settings, as text.
    settings: () => location.hash.slice(1),
    save: (text) => history.replaceState(null, "", `#${text}`),
    moved: (heard) => window.addEventListener("hashchange", () => heard(location.hash.slice(1))),
    share: () => location.href,
    resized: (draw) => {
      let width = window.innerWidth;
      window.addEventListener("resize", () => {
        if (window.innerWidth === width) return;
        width = window.innerWidth;
        draw();
      });
    },
  };
})();
