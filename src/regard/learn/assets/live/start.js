// Fills the figures of a page.
import { FIGURES } from "./registry.js";

for (const host of document.querySelectorAll("[data-live]")) FIGURES[host.dataset.live](host);
