// Two things: what is marked live is fetched anew now and then, and buttons and forms with data-post send JSON.
"use strict";

const said = (text) => {
  const place = document.getElementById("said");
  if (place) place.textContent = text;
};

const refresh = async () => {
  const live = document.getElementById("live");
  if (!live) return;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("live");
    if (fresh) live.replaceChildren(...fresh.childNodes);
    else said(`${answer.status}: ${page.querySelector("main p")?.textContent ?? "no answer"}`);
  } catch {
    said("no answer: what is shown is old");
  }
};

const isBusy = () => {
  const chosen = document.getSelection();
  return document.hidden || (chosen !== null && !chosen.isCollapsed);
};

const send = async (where, body, question, then) => {
  if (question && !confirm(question)) return;
  try {
    const answer = await fetch(where, { method: "POST", headers: { "content-type": "application/json" }, body });
    const told = await answer.json();
    if (!answer.ok) {
      said(told.error);
    } else if (then) {
      location.assign(then);
    } else {
      said(`${told.done}: ${told.changed === false ? "it was so already" : told.changed === true ? "done" : told.changed}`);
      await refresh();
    }
  } catch {
    said("no answer");
  }
};

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("button[data-post]") : null;
  if (button) send(button.dataset.post, button.dataset.body, button.dataset.confirm, button.dataset.then);
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.post) return;
  event.preventDefault();
  const wish = {};
  for (const field of form.querySelectorAll("input[name]")) {
    if (field.value !== "") wish[field.name] = "number" in field.dataset ? Number(field.value) : field.value;
  }
  send(form.dataset.post, JSON.stringify(wish), form.dataset.confirm, form.dataset.then);
});

document.addEventListener("DOMContentLoaded", () => {
  const seconds = Number(document.getElementById("live")?.dataset.seconds);
  const again = async () => {
    if (!isBusy()) await refresh();
    setTimeout(again, seconds * 1000);
  };
  if (seconds) setTimeout(again, seconds * 1000);
});
