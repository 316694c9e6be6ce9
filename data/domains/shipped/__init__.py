"""The domains whose databases are committed: eight that training questions touch, five that none
does."""

from data.domains.shipped import (
    airline,
    bakery,
    bikes,
    clinic,
    estate,
    festival,
    football,
    library,
    museum,
    music,
    university,
    vineyard,
    zoo,
)
from data.domains.shipped.parts import Shipped

SHIPPED: tuple[Shipped, ...] = (
    bakery.SHIPPED,
    clinic.SHIPPED,
    football.SHIPPED,
    library.SHIPPED,
    museum.SHIPPED,
    music.SHIPPED,
    university.SHIPPED,
    zoo.SHIPPED,
    airline.SHIPPED,
    bikes.SHIPPED,
    estate.SHIPPED,
    festival.SHIPPED,
    vineyard.SHIPPED,
)
