// Language, colours, menu and search of the site. Runs in the head, so that nothing changes after it is shown.
(() => {
  const root = document.documentElement, base = root.dataset.root;
  const kept = (name) => { try { return localStorage.getItem(`regard-${name}`); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(`regard-${name}`, value); } catch { /* private windows keep nothing */ } };
  const asked = new URLSearchParams(location.search).get("lang");
  const LANGUAGES = ["en", "zh", "both"];

  function chooseLanguage(lang) {
    root.dataset.lang = lang;
    root.lang = lang === "zh" ? "zh-CN" : "en";
    document.title = `${document.querySelector("title").dataset[lang === "zh" ? "zh" : "en"]} · regard`;
    for (const button of document.querySelectorAll("[data-choose]")) button.setAttribute("aria-pressed", button.dataset.choose === lang);
    for (const one of document.querySelectorAll("[data-label-zh]")) {
      one.dataset.labelEn ??= one.getAttribute("aria-label");
      one.setAttribute("aria-label", lang === "zh" ? one.dataset.labelZh : one.dataset.labelEn);
    }
    document.getElementById("site-search")?.setAttribute("placeholder", lang === "zh" ? "搜索" : "Search");
  }
  root.classList.add("js");
  const first = [asked, kept("lang"), root.dataset.lang].find((lang) => LANGUAGES.includes(lang));
  chooseLanguage(first);
  if (kept("theme")) root.dataset.theme = kept("theme");

  // Search

  let index = null; // [address, title, heading, text]
  function loadIndex() {
    index ??= new Promise((done, fail) => {
      globalThis.regardSearch = done;
      const script = document.createElement("script");
      script.src = `${base}/assets/search.js`;
      script.onerror = () => {
        script.remove();
        index = null; // the next key tries again
        fail(new Error("assets/search.js cannot be loaded"));
      };
      document.head.append(script);
    });
    return index;
  }

  /** Every word must be in the section; headings count more than text, and beginnings of words more than their middles. */
  function score([, title, heading, text], words) {
    let sum = 0;
    for (const word of words) {
      const places = [[heading, 8], [title, 4], [text, 1]].map(([where, weight]) => {
        const at = where.toLowerCase().indexOf(word);
        if (at < 0) return 0;
        return weight * (at === 0 || !/[\p{L}\p{N}]/u.test(where[at - 1]) ? 2 : 1);
      });
      const most = Math.max(...places);
      if (!most) return 0;
      sum += most;
    }
    return sum;
  }

  function excerpt(text, word) {
    const at = text.toLowerCase().indexOf(word);
    return at < 0 ? text.slice(0, 110) : (at > 40 ? "…" : "") + text.slice(Math.max(0, at - 40), at + 80);
  }

  function note(english, chinese) {
    const made = document.createElement("p");
    made.textContent = root.dataset.lang === "zh" ? chinese : english;
    return made;
  }

  async function search(input, panel) {
    const words = input.value.toLowerCase().split(/\s+/).filter((word) => word);
    if (!words.length) return void (panel.hidden = true);
    const asked = input.value, rows = await loadIndex().catch(() => null);
    if (asked !== input.value) return; // typed on meanwhile
    panel.hidden = false;
    if (!rows) return panel.replaceChildren(note("The index of the search cannot be loaded; type on to try again.", "搜索索引无法载入；继续输入会重试。"));
    const best = rows.map((row) => [score(row, words), row]).filter(([value]) => value).sort((a, b) => b[0] - a[0]).slice(0, 12);
    panel.replaceChildren(...best.map(([, [url, title, heading, text]]) => {
      const link = document.createElement("a"), name = document.createElement("strong"), some = document.createElement("span");
      link.href = `${base}/${url}`;
      name.textContent = heading && heading !== title ? `${title} › ${heading}` : title;
      some.textContent = excerpt(text, words[0]);
      link.append(name, some);
      return link;
    }));
    if (!best.length) panel.append(note("Nothing found.", "没有找到。"));
  }

  document.addEventListener("DOMContentLoaded", () => {
    const find = (id) => document.getElementById(`site-${id}`), input = find("search"), panel = find("found");
    chooseLanguage(root.dataset.lang);
    for (const button of document.querySelectorAll("[data-choose]"))
      button.addEventListener("click", () => {
        chooseLanguage(button.dataset.choose);
        keep("lang", button.dataset.choose);
        document.dispatchEvent(new Event("regard-language"));
      });
    find("theme").addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      keep("theme", root.dataset.theme);
      document.dispatchEvent(new Event("regard-theme"));
    });
    find("menu").addEventListener("click", () => {
      const open = find("nav").classList.toggle("open");
      find("menu").setAttribute("aria-expanded", open);
    });
    input.addEventListener("focus", () => loadIndex().catch(() => {}));
    input.addEventListener("input", () => search(input, panel));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") panel.hidden = true;
      if (event.key === "/" && !/INPUT|TEXTAREA|SELECT/.test(document.activeElement?.tagName ?? "")) {
        event.preventDefault();
        input.focus();
      }
      if (event.key === "ArrowDown" && document.activeElement === input && !panel.hidden) {
        event.preventDefault();
        panel.querySelector("a")?.focus();
      }
    });
    document.addEventListener("click", (event) => { if (!event.target.closest(".search")) panel.hidden = true; });
    // The current page is in view in a long navigation.
    const nav = find("nav"), here = nav.querySelector("[aria-current]");
    if (here && nav.scrollHeight > nav.clientHeight) nav.scrollTop = here.offsetTop - nav.clientHeight / 3;
  });
})();
