// Fills the figures of a page. Each figure is a function of its element; it says itself when it needs the model.

const FIGURES = {};

for (const host of document.querySelectorAll("[data-live]")) FIGURES[host.dataset.live]?.(host);
