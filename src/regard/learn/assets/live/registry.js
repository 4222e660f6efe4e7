// The figures by name. Each is a function of its element, and says itself when it needs the model.

export const FIGURES = {};
